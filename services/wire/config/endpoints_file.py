"""A file of endpoints -> what discovery declares: `endpoints: [{name, namespace, address, port, labels}]`.

The form that endpoint pickers of the field read where there is no orchestrator, with fields of ours beside it
(`ports`, `draining`, `ready`, `phase`, `zone`, `engine`, capacities). One file is one pool. Reading the file
from disk, and noticing that it changed, is `adapters/system`.
"""

import re
from collections import Counter
from ipaddress import ip_address
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from services.core.pods.discovered import MAX_PORTS, DiscoveredEndpoint, StartPhase
from services.wire.config.field_types import Kind, Many
from services.wire.config.problems import Problem, value_text
from services.wire.config.rules import Rule, findings
from services.wire.config.yaml_reader import YamlError, read_yaml

MAX_BYTES: Final = 1 << 20
"""The field's bound: some five thousand endpoints."""
DEFAULT_NAMESPACE: Final = "default"
PHASES: Final = {phase.name.lower(): phase for phase in StartPhase}

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?\Z")


def bare_host(text: str) -> str:
    """Return an IP address without brackets or a host name; raises ValueError for what is neither."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare or bare is not text:
        return str(ip_address(bare))
    if not _HOST.match(text):
        raise ValueError(text)
    return text


def _is_host(text: str) -> bool:
    try:
        bare_host(text)
    except ValueError:
        return False
    return True


def _number(value: Any) -> Any:
    """Read a port in quotes too: the field writes both."""
    quoted = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5
    return int(value) if quoted else value


ENDPOINT_NAME = Rule(
    "endpoint-name",
    "must be 1 to 64 letters, digits, '.', '_' and '-'",
    lambda text: len(text) <= 64 and _NAME.match(text) is not None,
)
ENDPOINT_ADDRESS = Rule("endpoint-address", "must be an IP address or a host name, without a port", _is_host)
ENDPOINT_PORT = Rule("endpoint-port", "must lie in 1..65535", lambda number: 1 <= number <= 65535)
ENDPOINT_PORTS = Rule(
    "endpoint-ports",
    f"must be `port`, or `ports` with 1 to {MAX_PORTS} different ones, and not both",
    lambda ports: 1 <= len(ports) <= MAX_PORTS and len(set(ports)) == len(ports),
)
ENDPOINT_PHASE = Rule("endpoint-phase", f"must be one of {', '.join(PHASES)}", PHASES.__contains__)
ENDPOINT_UNIQUE = Rule("endpoint-unique", "must not be named twice in a namespace", lambda count: count == 1)

PortNumber = Annotated[int, BeforeValidator(_number), AfterValidator(ENDPOINT_PORT)]
Name = Annotated[str, AfterValidator(ENDPOINT_NAME)]


class _Entry(Kind):
    name: Name
    namespace: Name = DEFAULT_NAMESPACE
    address: Annotated[str, AfterValidator(ENDPOINT_ADDRESS)]
    port: PortNumber | None = None
    ports: Many[PortNumber] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    engine: str = ""
    zone: str = ""
    draining: bool = False
    ready: bool | None = None
    phase: Annotated[str | None, AfterValidator(ENDPOINT_PHASE.if_given)] = None
    capacity_requests: Annotated[int | None, Field(ge=1)] = None
    capacity_tokens_per_s: Annotated[float | None, Field(gt=0)] = None

    @model_validator(mode="after")
    def _has_ports(self) -> Self:
        ENDPOINT_PORTS((*self.ports, *(() if self.port is None else (self.port,))))
        if self.port is not None and self.ports:
            ENDPOINT_PORTS(())
        return self

    def discovered(self) -> DiscoveredEndpoint:
        return DiscoveredEndpoint(
            # Names are unique in a namespace only, ids of pods in the whole table.
            self.name if self.namespace == DEFAULT_NAMESPACE else f"{self.namespace}.{self.name}",
            bare_host(self.address),
            self.ports if self.port is None else (self.port,),
            labels=self.labels,
            engine=self.engine,
            zone=self.zone,
            draining=self.draining,
            ready=self.ready,
            phase=None if self.phase is None else PHASES[self.phase],
            capacity_requests=self.capacity_requests,
            capacity_tokens_per_s=self.capacity_tokens_per_s,
        )


class _File(Kind):
    endpoints: Many[_Entry]


class EndpointsFileError(ValueError):
    """A file that cannot be used; `problems` says file, path, value and rule of each fault."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def read_endpoints(data: bytes, file: str) -> tuple[DiscoveredEndpoint, ...]:
    """Return the endpoints in the file's order; raises `EndpointsFileError`. `file` is its name in messages."""
    if len(data) > MAX_BYTES:
        raise _refused(file, "(document)", f"{len(data)} bytes", f"must not exceed {MAX_BYTES} bytes")
    try:
        trees = read_yaml(data)
    except YamlError as error:
        raise _refused(file, "(document)", f"line {error.line} column {error.column}", error.rule) from None
    if len(trees) != 1 or not isinstance(trees[0], dict):
        value = value_text(trees[0]) if len(trees) == 1 else f"{len(trees)} documents"
        raise _refused(file, "(document)", value, "must be one mapping with `endpoints`")
    try:
        entries = _File.model_validate(trees[0]).endpoints
    except ValidationError as error:
        found = findings(error)
        raise EndpointsFileError(
            tuple(Problem(file, 0, each.path, each.value, each.rule) for each in found)
        ) from None
    endpoints = tuple(entry.discovered() for entry in entries)
    counts = Counter(endpoint.name for endpoint in endpoints)
    twice = [
        Problem(file, 0, f"endpoints[{number}].name", value_text(endpoint.name), str(ENDPOINT_UNIQUE))
        for number, endpoint in enumerate(endpoints)
        if counts[endpoint.name] > 1
    ]
    if twice:
        raise EndpointsFileError(tuple(twice))
    return endpoints


def _refused(file: str, path: str, value: str, rule: str) -> EndpointsFileError:
    return EndpointsFileError((Problem(file, 0, path, value, rule),))

"""Loading: files -> documents of known kinds, with every problem found along the way.

Never raises for what a file holds: each fault becomes a `Problem`, and the documents that are
sound are kept so that one pass finds as much as it can. Files are read by the caller.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from services.wire.config.field_types import Kind
from services.wire.config.inference_gateway import InferenceGateway
from services.wire.config.kinds import API_VERSION, Fleet, Tenant, TokenKeys
from services.wire.config.problems import Problem, Severity, value_text
from services.wire.config.routing_policy import RoutingPolicy
from services.wire.config.rules import findings
from services.wire.config.site import Site
from services.wire.config.yaml_reader import YamlError, read_yaml

K = TypeVar("K", bound=Kind)
KINDS: Mapping[str, type[Kind]] = {
    "Fleet": Fleet,
    "InferenceGateway": InferenceGateway,
    "RoutingPolicy": RoutingPolicy,
    "Tenant": Tenant,
    "TokenKeys": TokenKeys,
    "Site": Site,
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file's name and bytes."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Located(Generic[K]):
    """A document and where it stands."""

    file: str
    document: int
    value: K

    def problem(self, path: str, value: object, rule: str, severity: Severity = Severity.ERROR) -> Problem:
        """Return a problem of this document."""
        return Problem(self.file, self.document, path, value_text(value), rule, severity)

    def __str__(self) -> str:
        """Return the place as text."""
        return self.file if self.document == 0 else f"{self.file}#{self.document + 1}"


@dataclass(frozen=True, slots=True)
class Documents:
    """Everything that was read. Sound only when `errors` is empty.

    `refused` names the kinds of which a document was, or may have been, given and is not here because
    it is not sound; what is missing among them is no finding of its own.
    """

    fleets: tuple[Located[Fleet], ...]
    routing_policies: tuple[Located[RoutingPolicy], ...]
    tenants: tuple[Located[Tenant], ...]
    token_keys: tuple[Located[TokenKeys], ...]
    sites: tuple[Located[Site], ...]
    inference_gateways: tuple[Located[InferenceGateway], ...]
    refused: frozenset[str]
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that refuse the documents."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that are only said."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.WARNING)


def read_documents(
    sources: Iterable[Source], checks: Sequence[Callable[[Documents], Iterable[Problem]]]
) -> Documents:
    """Return the documents of all sources and their problems; `checks` look at them together."""
    problems: list[Problem] = []
    found: list[Located[Any]] = []
    refused: set[str] = set()
    for source in sources:
        trees = _trees(source, problems)
        if trees is None:
            refused |= KINDS.keys()
            continue
        for document, tree in trees:
            value = _document(source.name, document, tree, problems)
            if value is not None:
                found.append(Located(source.name, document, value))
            elif isinstance(tree, dict):
                refused.add(str(tree.get("kind")))
    documents = Documents(
        fleets=_of_kind(found, Fleet),
        routing_policies=_of_kind(found, RoutingPolicy),
        tenants=_of_kind(found, Tenant),
        token_keys=_of_kind(found, TokenKeys),
        sites=_of_kind(found, Site),
        inference_gateways=_of_kind(found, InferenceGateway),
        refused=frozenset(refused & KINDS.keys()),
        problems=(),
    )
    for check in checks:
        problems.extend(check(documents))
    return replace(documents, problems=tuple(problems))


def _of_kind(found: Iterable[Located[Any]], kind: type[K]) -> tuple[Located[K], ...]:
    return tuple(located for located in found if isinstance(located.value, kind))


def _trees(source: Source, problems: list[Problem]) -> list[tuple[int, Any]] | None:
    """Return the documents of a file that hold something, None when the file cannot be read as YAML."""
    try:
        trees = read_yaml(source.data)
    except YamlError as error:
        where = f"line {error.line} column {error.column}"
        line = b"".join(source.data.splitlines()[error.line - 1 : error.line]).decode(errors="replace")
        problems.append(Problem(source.name, 0, where, value_text(line.strip()), error.rule))
        return None
    present = [(document, tree) for document, tree in enumerate(trees) if tree is not None]
    if not present:
        problems.append(Problem(source.name, 0, "(document)", "(empty)", "holds no document"))
    return present


def _document(file: str, document: int, tree: Any, problems: list[Problem]) -> Kind | None:
    def refuse(path: str, value: object, rule: str) -> None:
        problems.append(Problem(file, document, path, value_text(value), rule))

    if not isinstance(tree, dict):
        refuse("(document)", tree, "must be a mapping with apiVersion, kind, metadata and spec")
        return None
    if tree.get("apiVersion") != API_VERSION:
        refuse("apiVersion", tree.get("apiVersion"), f"must be {API_VERSION}")
        return None
    name = tree.get("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        refuse("kind", name, f"must be one of {', '.join(KINDS)}")
        return None
    try:
        return kind.model_validate(tree, by_alias=True, by_name=False)
    except ValidationError as error:
        problems.extend(
            Problem(file, document, found.path, found.value, found.rule) for found in findings(error)
        )
        return None

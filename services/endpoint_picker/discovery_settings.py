"""What a picker's settings say about where endpoints come from: one form for each kind of source.

Values and their rules only; `assembly_discovery` builds what they name. Apart from `settings` because every pool
chooses its own source.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from services.core.pods.discovered import MAX_PORTS
from services.wire.config.endpoints_file import ENDPOINT_ADDRESS, ENDPOINT_PORTS
from services.wire.config.inference_api import NAMESPACE, OBJECT_NAME
from services.wire.config.settings_source import Settings

PortNumber = Annotated[int, Field(ge=1, le=65535)]


class StaticDiscovery(Settings):
    """The pool's own `endpoints`, which change only with the settings."""

    kind: Literal["static"] = "static"


class FileDiscovery(Settings):
    """A file of endpoints that something else keeps, read again within `look_every_ms` of a change."""

    kind: Literal["file"]
    file: Path
    look_every_ms: Annotated[int, Field(ge=50, le=3_600_000)] = 1_000


class DnsDiscovery(Settings):
    """Every address of `host`, on each of `ports`: one port, or one for each data-parallel rank."""

    kind: Literal["dns"]
    host: Annotated[str, AfterValidator(ENDPOINT_ADDRESS)]
    ports: Annotated[tuple[PortNumber, ...], Field(max_length=MAX_PORTS), AfterValidator(ENDPOINT_PORTS)]
    ask_every_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 5_000


class KubernetesDiscovery(Settings):
    """The pods of InferencePool `pool`. An empty `namespace` is the picker's own."""

    kind: Literal["kubernetes"]
    pool: Annotated[str, AfterValidator(OBJECT_NAME)]
    namespace: Annotated[str, AfterValidator(lambda name: name and NAMESPACE(name))] = ""


Discovery = Annotated[
    StaticDiscovery | FileDiscovery | DnsDiscovery | KubernetesDiscovery, Field(discriminator="kind")
]


class KubernetesAccess(Settings):
    """How the API server is reached: by a kubeconfig, or as the pod that this process runs in."""

    kubeconfig: Path | None = None
    context: str = ""
    namespace: Annotated[str, AfterValidator(lambda name: name and NAMESPACE(name))] = ""
    """Where pools, objectives and the Lease are, unless a pool says otherwise. Empty: the pod's own namespace."""
    lease_name: Annotated[str, AfterValidator(OBJECT_NAME)] = "gir-endpoint-picker"
    """The Lease of `lease: kubernetes`; pickers of one cluster share it."""

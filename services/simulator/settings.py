"""Settings of one simulated pod: parsed once, frozen, unknown keys refused.

Every field has its unit in its name and its default's reason beside it. Nothing here reads a file or the
environment.
"""

from dataclasses import replace
from ipaddress import ip_address
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from services.simulator.faults import Faults, updated
from services.simulator.flavours import Flavour, names_of
from services.simulator.process_page import PAGE_LINES_MAX
from services.simulator.profile import PROFILES, EngineProfile
from services.simulator.vllm_page import MetricNames
from services.wire.config.settings_source import Settings

# Engines list adapters by comma in a label, so a name holds none.
LoraName = Annotated[str, Field(pattern=r"^[^,\s]{1,256}$")]
_ENDPOINT = r"^$|^tcp://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$"
DATA_PARALLEL_MAX = 64
STARTUP_MAX_S = 3600.0


class EngineOverrides(Settings):
    """Fields of the profile to change; None leaves the preset's value."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    prefix_caching: bool | None = None
    step_base_us: int | None = None
    prefill_token_us: int | None = None
    decode_sequence_us: int | None = None
    time_factor_under_load: float | None = None
    lora_load_us: int | None = None


class KvEventSettings(Settings):
    """KV events of a pod, in vLLM's wire format.

    endpoint: where the ranks publish, `tcp://host:port`, rank r at port + r; 0 takes free ones; empty: no events.
    replay_endpoint: where missed batches are had, likewise; empty: nowhere.
    as_maps: events as maps with a "type", as vLLM has them since mid-2026, not arrays with the tag first.
    replay_batches: how many of the last batches each rank keeps; vLLM's default.
    """

    endpoint: str = Field("", pattern=_ENDPOINT)
    replay_endpoint: str = Field("", pattern=_ENDPOINT)
    as_maps: bool = False
    replay_batches: int = Field(10_000, ge=1, le=100_000)

    @model_validator(mode="after")
    def _consistent(self) -> "KvEventSettings":
        if self.replay_endpoint and not self.endpoint:
            raise ValueError("replay_endpoint needs an endpoint to replay")
        return self


class PodSettings(Settings):
    """One pod.

    pod: its name, sent as `x-inference-pod` and part of the hash that picks injected failures.
    host, port: 8100 is this verb's port in the house; 0 takes a free one.
    insecure_bind: needed for an address other than loopback, since nothing here speaks TLS.
    model, aliases: served names; metrics carry `model`.
    profile, engine: a preset and changes to it.
    loras, max_loras: adapters known from the start, and how many fit on the GPU at once (by default as many
    as are named); without either, none are served and none can be loaded.
    flavour: the engine it poses as. version: of that engine; empty is a current one.
    metric_names: vLLM's generation of names; by default the one of its version (old before 0.9.2).
    page_lines: the metrics page has at least this many lines; real pages have 1,500 and more.
    data_parallel_size: ranks, each with an engine of its own behind the one port.
    kv_events: what is published of the KV cache.
    startup_s: seconds of loading weights, in which connections are refused, as real engines do: they listen
    once they can serve.
    wake_interval_ms: least time between two batches of streamed tokens; larger saves CPU when many pods
    share a process, and tokens then come in bursts.
    body_max_bytes: request bodies above it are refused with 413.
    faults: initial fault knobs, as POST /admin/config takes them.
    """

    pod: str = Field("pod-0", pattern=r"^[A-Za-z0-9._-]{1,128}$")
    host: str = "127.0.0.1"
    port: int = Field(8100, ge=0, le=65535)
    insecure_bind: bool = False
    model: str = Field("llama-3.1-8b", min_length=1, max_length=256)
    aliases: tuple[str, ...] = ()
    profile: str = "h100-8b"
    engine: EngineOverrides = EngineOverrides()
    loras: tuple[LoraName, ...] = ()
    max_loras: int | None = Field(None, ge=0, le=1024)
    flavour: Flavour = Flavour.VLLM
    version: str = ""
    metric_names: MetricNames | None = None
    page_lines: int = Field(0, ge=0, le=PAGE_LINES_MAX)
    data_parallel_size: int = Field(1, ge=1, le=DATA_PARALLEL_MAX)
    kv_events: KvEventSettings = KvEventSettings()
    startup_s: float = Field(0.0, ge=0.0, le=STARTUP_MAX_S)
    wake_interval_ms: int = Field(2, ge=1, le=1000)
    body_max_bytes: int = Field(64 * 1024 * 1024, ge=1024, le=256 * 1024 * 1024)
    faults: dict[str, Any] = Field(default_factory=dict)

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        if value not in PROFILES:
            raise ValueError(f"no such profile; known are {', '.join(PROFILES)}")
        return value

    @field_validator("faults")
    @classmethod
    def _known_faults(cls, value: dict[str, Any]) -> dict[str, Any]:
        updated(Faults(), value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "PodSettings":
        profile = self.engine_profile()
        if self.loras and not profile.max_loras:
            raise ValueError("loras are named, but max_loras is 0")
        events = self.kv_events
        if events.endpoint and not profile.prefix_caching:
            raise ValueError("kv_events need prefix_caching")
        endpoints = filter(None, (events.endpoint, events.replay_endpoint))
        for host in (self.host, *(_host_of(endpoint) for endpoint in endpoints)):
            if not self.insecure_bind and not _is_loopback(host):
                raise ValueError(
                    f"{host} is not a loopback address; set insecure_bind to listen there without TLS"
                )
        return self

    def engine_profile(self) -> EngineProfile:
        """Return the preset with the overrides applied; raises ValueError when they do not fit together."""
        changes = {name: value for name, value in self.engine.model_dump().items() if value is not None}
        most = len(self.loras) if self.max_loras is None else self.max_loras
        return replace(PROFILES[self.profile], max_loras=most, **changes)

    def engine_version(self) -> str:
        """Return the version the pod says its engine has."""
        return self.version or self.flavour.default_version

    def names(self) -> MetricNames:
        """Return the generation of vLLM's metric names that the pod uses."""
        return self.metric_names or names_of(self.engine_version())

    def initial_faults(self) -> Faults:
        """Return the fault knobs the pod starts with."""
        return updated(Faults(), self.faults)


def _host_of(endpoint: str) -> str:
    return endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

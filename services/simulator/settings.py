"""Settings of one simulated pod: parsed once, frozen, unknown keys refused.

Every field has its unit in its name and its default's reason beside it. Nothing here reads a file or the
environment.
"""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from pydantic import Field, field_validator, model_validator

from services.simulator.faults import Faults, updated
from services.simulator.metrics_page import MetricNames
from services.simulator.profile import PROFILES, EngineProfile
from services.wire.config.settings_source import Settings


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


class PodSettings(Settings):
    """One pod.

    pod: its name, sent as `x-inference-pod` and part of the hash that picks injected failures.
    host, port: 8100 is this verb's port in the house; 0 takes a free one.
    insecure_bind: needed for an address other than loopback, since nothing here speaks TLS.
    model, aliases: served names; metrics carry `model`.
    profile, engine: a preset and changes to it.
    metric_names: vLLM's generation of names. version: what /version says; 0.8.5 goes with the old names.
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
    metric_names: MetricNames = MetricNames.CURRENT
    version: str = "0.11.0"
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
        self.engine_profile()
        if not self.insecure_bind and not _is_loopback(self.host):
            raise ValueError(
                f"{self.host} is not a loopback address; set insecure_bind to listen there without TLS"
            )
        return self

    def engine_profile(self) -> EngineProfile:
        """Return the preset with the overrides applied; raises ValueError when they do not fit together."""
        changes = {name: value for name, value in self.engine.model_dump().items() if value is not None}
        return replace(PROFILES[self.profile], **changes)

    def initial_faults(self) -> Faults:
        """Return the fault knobs the pod starts with."""
        return updated(Faults(), self.faults)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

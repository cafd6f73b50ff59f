"""Settings of how traffic is spread: strategy or `EndpointPickerConfig`, and the prefix indexes.

Part of `settings`, which says what a picker as a whole needs. Values and their rules only.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from services.core.scheduling.baselines import strategy
from services.wire.config.settings_source import Settings

PortNumber = Annotated[int, Field(ge=1, le=65535)]


def _known(name: str) -> str:
    strategy(name)
    return name


class Scheduling(Settings):
    """How pods are picked: by a strategy's name, or as `config`, an `EndpointPickerConfig`, says. Neither: the default.

    Flow control is part of an `EndpointPickerConfig`; without one there is no queue.
    """

    strategy: Annotated[str, AfterValidator(_known)] | None = None
    config: Path | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.strategy is not None and self.config is not None:
            raise ValueError("strategy and config: only one of the two")
        return self


class KvEvents(Settings):
    """Where pods publish KV events, on their own addresses: `port` + rank, replays on `replay_port` + rank.

    `ranks` is how many data-parallel ranks one endpoint has; endpoints that are ranks themselves count by their
    place in the pod. `replay_port` None: what is missed is gone.
    """

    port: PortNumber = 5557
    replay_port: PortNumber | None = 5558
    ranks: Annotated[int, Field(ge=1, le=64)] = 1


class Tokenize(Settings):
    """Ask a pod's `/tokenize` for the ids of text prompts, for at most `budget_ms`; matters with `kv_events` alone."""

    budget_ms: Annotated[int, Field(ge=1, le=1_000)] = 20


class Prefix(Settings):
    """The prefix indexes. Without `kv_events` they know what this picker, and those it shares with, sent where.

    `redis` shares placements between the replicas of a picker, sealed with the secret in `secret_file`, which all of
    them have (16 to 64 bytes). `max_blocks` bounds each index: 200 to 400 bytes a block.
    """

    max_blocks: Annotated[int, Field(ge=1_000, le=100_000_000)] = 1_000_000
    secret_file: Path | None = None
    redis: str = ""
    kv_events: KvEvents | None = None
    tokenize: Tokenize | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.redis and self.secret_file is None:
            raise ValueError("redis: needs secret_file, which the replicas that share have in common")
        if self.tokenize is not None and self.kv_events is None:
            raise ValueError("tokenize: needs kv_events; nothing else reads token ids")
        return self

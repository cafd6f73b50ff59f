"""The part of a picker's assembly that builds how traffic is spread: the profile, flow control, prefix indexes.

Named by `assembly` alone. Nothing is started here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from services.adapters.auth.key_files import KeyFileError, read_private
from services.adapters.model_server.tokenizer import HttpTokenizer
from services.adapters.ports import Clock, Ids
from services.adapters.prefix_ports import Tokenizer
from services.adapters.redis.prefix_feed import RedisPrefixFeed
from services.adapters.system.tasks import TaskScope
from services.adapters.telemetry.prometheus import Value
from services.adapters.zmq.kv_events import ZmqKvEvents
from services.core.pods.table import Pod, PodTable
from services.core.prefix.blocks import MAX_PREFIX_TOKENS
from services.core.scheduling.baselines import strategy
from services.core.scheduling.profile import SchedulingProfile
from services.core.units import ms
from services.endpoint_picker.addresses import join, split
from services.endpoint_picker.kv_listener import KvListener
from services.endpoint_picker.prefix import PrefixIndexes
from services.endpoint_picker.prefix_pods import KvEventPlan, PrefixPods
from services.endpoint_picker.prefix_requests import PrefixRequests
from services.endpoint_picker.prefix_sharing import PrefixSharing
from services.endpoint_picker.settings import PickerSettings
from services.endpoint_picker.traffic_settings import KvEvents, Prefix, Scheduling
from services.wire.config.scheduling import DEFAULT, PickerConfig, PickerConfigError, read_picker_config
from services.wire.config.settings_source import SettingsError
from services.wire.prefix_batches import PrefixSeal

SECRET_BYTES = range(16, 65)
_OWN_SECRET_BYTES = 32


@dataclass(slots=True)
class PrefixParts:
    """Everything of the prefix step. `sharing` and `tokenizer` are None where not configured."""

    indexes: PrefixIndexes
    requests: PrefixRequests
    pods: PrefixPods
    listener: KvListener | None
    sharing: PrefixSharing | None
    feed: RedisPrefixFeed | None
    tokenizer: Tokenizer | None

    def start(self, tasks: TaskScope) -> None:
        """Begin to record, and to share."""
        tasks.spawn(self.indexes.run(), "record prefixes")
        if self.sharing is not None:
            tasks.spawn(self.sharing.send(), "share prefixes")
            tasks.spawn(self.sharing.receive(), "hear of prefixes")

    async def close(self) -> None:
        """Close what has connections of its own."""
        if self.feed is not None:
            await self.feed.close()
        if self.tokenizer is not None:
            await self.tokenizer.close()

    def values(self) -> Iterable[Value]:
        """Return all metrics of the parts."""
        yield from self.indexes.values()
        yield from self.requests.values()
        if self.listener is not None:
            yield from self.listener.values()
        if self.sharing is not None:
            yield from self.sharing.values()


def read_scheduling(wanted: Scheduling) -> PickerConfig:
    """Return what is asked for. Raises `SettingsError` for a file that is not there or is refused."""
    if wanted.config is not None:
        try:
            return read_picker_config(wanted.config.read_bytes(), str(wanted.config))
        except OSError as error:
            raise SettingsError((f"scheduling.config: {wanted.config}: {error.strerror}",)) from None
        except PickerConfigError as error:
            raise SettingsError(tuple(str(problem) for problem in error.problems)) from None
    if wanted.strategy is None:
        return DEFAULT
    profile = strategy(wanted.strategy)
    return PickerConfig(profile, None, DEFAULT.prefix if profile.reads_prefix else None, DEFAULT.parsers)


@dataclass(frozen=True, slots=True)
class Spread:
    """How traffic is spread over each pool's pods, and what of a request that needs to be known.

    `profiles` are those of the pools that are not picked by the configuration's; `headers` and `reads_sessions` are
    what any pool's profile reads, and the configuration names a prefix source if any reads prefixes.
    """

    config: PickerConfig
    profiles: Mapping[str, SchedulingProfile]
    headers: frozenset[str]
    reads_sessions: bool


def spread_over(
    pools: Iterable[str], config: PickerConfig, profiles: Mapping[str, SchedulingProfile]
) -> Spread:
    """Return how traffic is spread over `pools` by `config` and the `profiles` of some of them."""
    used = [profiles.get(pool, config.profile) for pool in pools]
    prefix = (config.prefix or DEFAULT.prefix) if any(each.reads_prefix for each in used) else None
    return Spread(
        replace(config, prefix=prefix),
        profiles,
        frozenset(name for each in used for name in each.headers),
        any(each.reads_sessions for each in used),
    )


def build_prefix(
    settings: PickerSettings, config: PickerConfig, table: PodTable, clock: Clock, ids: Ids, tasks: TaskScope
) -> PrefixParts | None:
    """Return the prefix step, None where no scorer or filter reads it."""
    if config.prefix is None:
        return None
    wanted = settings.prefix
    if config.prefix.precise and wanted.kv_events is None:
        raise SettingsError(("prefix.kv_events: needed by the precise prefix producer of scheduling.config",))
    secret = ids.token(_OWN_SECRET_BYTES) if wanted.secret_file is None else _secret(wanted.secret_file)
    precise = wanted.kv_events is not None
    indexes = PrefixIndexes(
        secret,
        precise=precise,
        max_blocks=wanted.max_blocks,
        block_tokens=config.prefix.block_tokens,
        blocks_per_pod=config.prefix.blocks_per_pod,
        match_tokens=config.prefix.match_tokens or MAX_PREFIX_TOKENS,
    )
    listener = None if indexes.precise is None else KvListener(indexes.precise, clock)
    plan = None
    if listener is not None and wanted.kv_events is not None:
        models = {pool.name: pool.models[0] for pool in settings.pool_specs}
        plan = KvEventPlan(listener, models, wanted.kv_events.ranks, _connect(wanted.kv_events))
    sharing = feed = None
    if wanted.redis:
        feed = RedisPrefixFeed(wanted.redis, settings.cluster)
        sharing = PrefixSharing(feed, PrefixSeal(secret), indexes, clock, ids)
    tokenizer = HttpTokenizer() if wanted.tokenize is not None else None
    requests = _requests(wanted, indexes, tasks, tokenizer, table)
    return PrefixParts(
        indexes, requests, PrefixPods(indexes, tasks, plan), listener, sharing, feed, tokenizer
    )


def _requests(
    wanted: Prefix, indexes: PrefixIndexes, tasks: TaskScope, tokenizer: Tokenizer | None, table: PodTable
) -> PrefixRequests:
    if tokenizer is None or wanted.tokenize is None:
        return PrefixRequests(indexes, tasks)
    turn = 0

    def address_of(pool: str) -> str | None:
        """Ask the ready pods in turn: tokenizing is a server's CPU time."""
        nonlocal turn
        ready = table.ready(pool)
        turn += 1
        return ready[turn % len(ready)].address if ready else None

    return PrefixRequests(indexes, tasks, tokenizer, address_of, ms(wanted.tokenize.budget_ms))


def _connect(wanted: KvEvents) -> Callable[[Pod, int], ZmqKvEvents]:
    def connect(pod: Pod, rank: int) -> ZmqKvEvents:
        host, _ = split(pod.address)
        replay = "" if wanted.replay_port is None else f"tcp://{join(host, wanted.replay_port + rank)}"
        return ZmqKvEvents(f"tcp://{join(host, wanted.port + rank)}", replay)

    return connect


def _secret(file: Path) -> bytes:
    try:
        secret = read_private(file).strip()
    except KeyFileError as error:
        raise SettingsError((f"prefix.secret_file: {error}",)) from None
    if len(secret) not in SECRET_BYTES:
        raise SettingsError((f"prefix.secret_file: {file}: must hold 16 to 64 bytes, not {len(secret)}",))
    return secret

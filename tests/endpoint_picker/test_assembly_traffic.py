"""What settings and files make of scheduling and the prefix step, and what is said when they cannot."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.adapters.auth.key_files import write_private
from services.adapters.metric_names.catalogue import METRICS
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.adapters.system.tasks import TaskScope
from services.core.pods.table import Pod, PodTable
from services.core.prefix.blocks import Prompt
from services.core.scheduling.profile import ENDPOINTS, Picker, Weighted, endpoint_profile
from services.core.scheduling.scorers.affinity import Session
from services.core.scheduling.scorers.fit import HeaderLabel
from services.core.units import Instant
from services.endpoint_picker.assembly_traffic import PrefixParts, build_prefix, read_scheduling, spread_over
from services.endpoint_picker.settings import PickerSettings
from services.endpoint_picker.traffic_settings import Scheduling
from services.wire.config.scheduling import DEFAULT, PickerConfig
from services.wire.config.scheduling_plugins import PrefixSource
from services.wire.config.settings_source import SettingsError

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
PRECISE = PickerConfig(ENDPOINTS, None, PrefixSource(precise=True), ())


def settings(**prefix: Any) -> PickerSettings:
    pools = [{"name": "chat", "models": ["m"], "endpoints": [{"id": "a", "address": "127.0.0.1:1"}]}]
    return PickerSettings.model_validate(
        {"cluster": "c", "region": "r", "jurisdiction": "eu", "pools": pools, "prefix": prefix}
    )


def table() -> PodTable:
    return PodTable([Pod("a", "127.0.0.1:1", "chat")], Instant(0))


@pytest.fixture
async def tasks() -> AsyncIterator[TaskScope]:
    failed: list[BaseException] = []
    scope = TaskScope(lambda _, failure: failed.append(failure))
    yield scope
    await scope.close()
    assert failed == []


def built(tasks: TaskScope, config: PickerConfig = DEFAULT, **prefix: Any) -> PrefixParts:
    parts = build_prefix(settings(**prefix), config, table(), SystemClock(), SystemIds(), tasks)
    assert parts is not None
    return parts


def refused(**prefix: Any) -> str:
    with pytest.raises(SettingsError) as error:
        build_prefix(
            settings(**prefix), DEFAULT, table(), SystemClock(), SystemIds(), TaskScope(lambda *_: None)
        )
    (problem,) = error.value.problems
    return problem


# --- Scheduling ---------------------------------------------------------------------------------


def test_nothing_asked_for_is_the_default() -> None:
    assert read_scheduling(Scheduling()) is DEFAULT


def test_a_strategy_reads_prefixes_only_where_it_scores_them() -> None:
    aware = read_scheduling(Scheduling(strategy="PREFIX_AWARE"))
    assert (aware.profile, aware.prefix) == (ENDPOINTS, DEFAULT.prefix)
    plain = read_scheduling(Scheduling(strategy="ROUND_ROBIN"))
    assert (plain.profile.picker, plain.prefix, plain.flow_control) == (Picker.ROUND_ROBIN, None, None)


def test_a_configuration_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "epp.yaml"
    file.write_text(HEAD + "featureGates: [flowControl]\nplugins: [{type: queue-scorer}]\n")
    config = read_scheduling(Scheduling(config=file))
    assert config.flow_control is not None
    assert config.prefix is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    with pytest.raises(SettingsError) as error:
        read_scheduling(Scheduling(config=file))
    assert error.value.problems == (f"scheduling.config: {file}: No such file or directory",)


@pytest.mark.parametrize(
    ("text", "path", "rule"),
    [
        (HEAD + "plugins: [{type: magic}]\n", "plugins[0].type", "plugin type 'magic' is not registered"),
        (HEAD + "plugins: [\n", "line", "failed to decode configuration"),
        ("kind: EndpointPickerConfig\n", "apiVersion", "must be one of llm-d.ai/v1alpha1"),
    ],
)
def test_a_broken_file_is_refused_by_file_path_and_rule(
    tmp_path: Path, text: str, path: str, rule: str
) -> None:
    file = tmp_path / "epp.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        read_scheduling(Scheduling(config=file))
    (said,) = error.value.problems
    assert said.startswith(f"{file}")
    assert path in said
    assert rule in said


# --- Prefix -------------------------------------------------------------------------------------


async def test_nobody_who_reads_prefixes_needs_no_index(tasks: TaskScope) -> None:
    config = read_scheduling(Scheduling(strategy="random"))
    assert build_prefix(settings(), config, table(), SystemClock(), SystemIds(), tasks) is None


def test_what_any_pools_profile_reads_is_read() -> None:
    plain = read_scheduling(Scheduling(strategy="random"))
    tiers = endpoint_profile(scorers=(Weighted(HeaderLabel("x-tier", "tier")),))
    sticky = endpoint_profile(scorers=(Weighted(Session()),))
    pools = ("chat", "code", "plain")
    mixed = spread_over(pools, plain, {"chat": tiers, "code": sticky})
    assert (mixed.headers, mixed.reads_sessions, mixed.config.prefix) == (
        frozenset({"x-tier"}),
        True,
        None,
    )
    assert spread_over(pools, plain, {"code": ENDPOINTS}).config.prefix == DEFAULT.prefix
    own = spread_over(pools, PRECISE, {"chat": plain.profile})
    assert (own.headers, own.reads_sessions, own.config.prefix) == (frozenset(), False, PRECISE.prefix)


def test_a_profile_that_no_pool_is_picked_by_reads_nothing() -> None:
    plain = read_scheduling(Scheduling(strategy="random"))
    assert spread_over(["chat"], PRECISE, {"chat": plain.profile}).config.prefix is None


async def test_the_plain_index_has_no_listener_no_feed_and_no_tokenizer(tasks: TaskScope) -> None:
    parts = built(tasks)
    assert (parts.listener, parts.sharing, parts.feed, parts.tokenizer) == (None, None, None, None)
    assert parts.indexes.precise is None
    parts.start(tasks)
    await parts.close()


async def test_all_parts_are_told_in_metrics(tasks: TaskScope, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write_private(secret, b"s" * 32)
    parts = built(tasks, kv_events={}, tokenize={}, redis="redis://127.0.0.1:1/0", secret_file=secret)
    names = {value.name for value in parts.values()}
    assert names <= set(METRICS)
    assert {"gir_picker_prefix_entries", "gir_picker_prefix_feed_connected"} <= names
    parts.start(tasks)
    await parts.close()


async def test_a_precise_producer_needs_to_know_where_events_are(tasks: TaskScope) -> None:
    with pytest.raises(SettingsError, match=r"prefix\.kv_events: needed by the precise prefix producer"):
        built(tasks, PRECISE)
    assert built(tasks, PRECISE, kv_events={}).listener is not None


async def test_sizes_of_a_producer_reach_the_index(tasks: TaskScope) -> None:
    config = PickerConfig(ENDPOINTS, None, PrefixSource(False, 128, 1000, 1280), ())
    parts = built(tasks, config)
    parts.pods.follow(table())
    found = parts.indexes.signals("chat", "m", Prompt(b"x" * 10_000))
    assert (found.block_tokens, found.total_blocks) == (128, 10)


async def test_replicas_with_one_secret_hash_alike_and_others_do_not(
    tasks: TaskScope, tmp_path: Path
) -> None:
    for name, content in (("one", b"a" * 16), ("same", b"a" * 16 + b"\n"), ("other", b"b" * 64)):
        write_private(tmp_path / name, content)
    one, same, other = (
        built(tasks, secret_file=tmp_path / name).indexes.root("m", "", 64)
        for name in ("one", "same", "other")
    )
    assert one == same != other
    assert built(tasks).indexes.root("m", "", 64) != built(tasks).indexes.root("m", "", 64)


def test_a_secret_must_be_there_private_and_long_enough(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    assert refused(secret_file=file).startswith(f"prefix.secret_file: {file}: cannot be read")
    write_private(file, b"short")
    assert refused(secret_file=file) == f"prefix.secret_file: {file}: must hold 16 to 64 bytes, not 5"
    file.chmod(0o644)
    assert "chmod 600" in refused(secret_file=file)

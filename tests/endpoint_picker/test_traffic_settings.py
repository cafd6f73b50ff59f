"""What may be asked of scheduling and the prefix indexes, and each refusal with its path and rule."""

import pytest

from services.endpoint_picker.settings import PickerSettings
from services.endpoint_picker.traffic_settings import KvEvents, Prefix, Scheduling
from services.wire.config.settings_source import SettingsError, load_settings

SETTINGS = """
cluster: eu-west-1
region: eu-west
jurisdiction: eu
pools: [{name: chat, models: [m]}]
"""


def refusals(text: str) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_settings(PickerSettings, SETTINGS + text, "picker.yaml", {})
    return list(refused.value.problems)


def test_a_picker_that_is_told_nothing_has_the_default_profile_and_shares_nothing() -> None:
    settings = load_settings(PickerSettings, SETTINGS, "picker.yaml", {})
    assert settings.scheduling == Scheduling(strategy=None, config=None)
    assert settings.prefix == Prefix(
        max_blocks=1_000_000, secret_file=None, redis="", kv_events=None, tokenize=None
    )


def test_kv_events_have_the_ports_of_the_field() -> None:
    assert KvEvents() == KvEvents(port=5557, replay_port=5558, ranks=1)


@pytest.mark.parametrize("name", ["random", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE"])
def test_a_strategy_is_known_in_both_spellings(name: str) -> None:
    assert Scheduling(strategy=name).strategy == name


@pytest.mark.parametrize(
    ("text", "path", "value", "rule"),
    [
        ("scheduling: {strategy: fastest}", "scheduling.strategy", "fastest", "must be one of random, "),
        (
            "scheduling: {strategy: random, config: f}",
            "scheduling",
            "strategy and config",
            "only one of the two",
        ),
        ("prefix: {redis: 'redis://h'}", "prefix", "redis", "needs secret_file"),
        ("prefix: {tokenize: {}}", "prefix", "tokenize", "needs kv_events"),
        ("prefix: {max_blocks: 10}", "prefix.max_blocks", "10", "greater than or equal to 1000"),
        ("prefix: {kv_events: {port: 0}}", "prefix.kv_events.port", "0", "greater than or equal to 1"),
        ("prefix: {kv_events: {ranks: 65}}", "prefix.kv_events.ranks", "65", "less than or equal to 64"),
        (
            "prefix: {kv_events: {}, tokenize: {budget_ms: 0}}",
            "prefix.tokenize.budget_ms",
            "0",
            "greater than or equal to 1",
        ),
        ("prefix: {colour: red}", "prefix.colour", "", "unknown setting"),
    ],
)
def test_a_refusal_names_file_path_value_and_rule(text: str, path: str, value: str, rule: str) -> None:
    (said,) = refusals(text)
    assert said.startswith(f"picker.yaml: {path}: ")
    assert value in said
    assert rule in said

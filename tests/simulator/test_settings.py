from typing import Any

import pytest

from services.simulator.faults import MetricsFault
from services.simulator.flavours import Flavour
from services.simulator.profile import H100_8B
from services.simulator.settings import PodSettings
from services.simulator.vllm_page import MetricNames
from services.wire.config.settings_source import SettingsError, load_settings


def load(text: str, **flags: Any) -> PodSettings:
    return load_settings(PodSettings, text, "pod.yaml", {}, flags)


def test_the_default_pod_is_an_h100_on_loopback() -> None:
    settings = PodSettings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8100)
    assert settings.engine_profile() == H100_8B


def test_a_preset_can_be_changed_field_by_field() -> None:
    settings = load("profile: a10-8b\nengine: {max_num_seqs: 8, prefix_caching: false}\nmetric_names: old\n")
    profile = settings.engine_profile()
    assert (profile.name, profile.max_num_seqs, profile.prefix_caching) == ("a10-8b", 8, False)
    assert settings.names() is MetricNames.OLD


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.8.5", MetricNames.OLD),
        ("0.9.1", MetricNames.OLD),
        ("0.9.2", MetricNames.CURRENT),
        ("v0.10.0rc1", MetricNames.CURRENT),
        ("nightly", MetricNames.CURRENT),
    ],
)
def test_the_metric_names_are_those_of_the_version(version: str, names: MetricNames) -> None:
    assert load(f"version: {version}").names() is names


def test_a_pod_has_the_version_of_its_flavour_unless_told() -> None:
    assert load("").engine_version() == "0.11.0"
    assert load("flavour: sglang").engine_version() == Flavour.SGLANG.default_version == "0.5.5"
    assert load("version: 0.8.5").engine_version() == "0.8.5"


def test_every_named_adapter_has_a_slot_unless_told() -> None:
    assert load("").engine_profile().max_loras == 0
    assert load("loras: [a, b]").engine_profile().max_loras == 2
    assert load("loras: [a, b]\nmax_loras: 1").engine_profile().max_loras == 1
    assert load("max_loras: 4").engine_profile().max_loras == 4


def test_kv_events_may_be_on_loopback_of_either_family() -> None:
    for place in ("tcp://127.0.0.1:0", "tcp://[::1]:5557", "tcp://localhost:5557"):
        assert load(f"kv_events: {{endpoint: '{place}'}}").kv_events.endpoint == place


def test_a_pod_can_start_with_faults() -> None:
    assert load("faults: {metrics: nan}").initial_faults().metrics is MetricsFault.NAN


@pytest.mark.parametrize("host", ["127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_leave(host: str) -> None:
    assert PodSettings(host=host).host == host


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("colour: red", "colour: unknown setting"),
        ("engine: {colour: red}", "engine.colour: unknown setting"),
        ("profile: b200", "no such profile; known are h100-8b, a10-8b"),
        ("engine: {max_num_seqs: 0}", "max_num_seqs must be at least 1"),
        ("faults: {hang: maybe}", "hang: expected true or false"),
        ("faults: {colour: red}", "colour: no such knob"),
        ("host: 0.0.0.0", "0.0.0.0 is not a loopback address"),
        ("host: example.org", "example.org is not a loopback address"),
        ("pod: 'a b'", "pod: 'a b'"),
        ("port: 70000", "port: 70000"),
        ("flavour: tgi", "flavour: 'tgi'"),
        ("loras: ['a,b']", "loras.0: 'a,b'"),
        ("loras: [a]\nmax_loras: 0", "loras are named, but max_loras is 0"),
        ("kv_events: {endpoint: 'ipc://x'}", "kv_events.endpoint: 'ipc://x'"),
        ("kv_events: {replay_endpoint: 'tcp://127.0.0.1:1'}", "replay_endpoint needs an endpoint"),
        ("kv_events: {endpoint: 'tcp://192.0.2.1:1'}", "192.0.2.1 is not a loopback address"),
        (
            "kv_events: {endpoint: 'tcp://127.0.0.1:1'}\nengine: {prefix_caching: false}",
            "kv_events need prefix_caching",
        ),
        ("page_lines: 2001", "page_lines: 2001"),
        ("data_parallel_size: 0", "data_parallel_size: 0"),
    ],
)
def test_a_wrong_setting_is_named(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert sentence in "\n".join(caught.value.problems)


def test_another_address_needs_to_be_asked_for() -> None:
    assert load("host: 0.0.0.0\ninsecure_bind: true").host == "0.0.0.0"

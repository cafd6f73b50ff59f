from typing import Any

import pytest

from services.simulator.faults import MetricsFault
from services.simulator.metrics_page import MetricNames
from services.simulator.profile import H100_8B
from services.simulator.settings import PodSettings
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
    assert settings.metric_names is MetricNames.OLD


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
    ],
)
def test_a_wrong_setting_is_named(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert sentence in "\n".join(caught.value.problems)


def test_another_address_needs_to_be_asked_for() -> None:
    assert load("host: 0.0.0.0\ninsecure_bind: true").host == "0.0.0.0"

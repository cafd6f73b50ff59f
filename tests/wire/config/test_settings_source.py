"""Settings: order of sources, refusals by name, and nothing that is not asked for."""

from typing import Any

import pytest
from pydantic import Field, field_validator, model_validator

from services.wire.config.settings_source import SETTINGS_MAX_BYTES, Settings, SettingsError, load_settings


class Door(Settings):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)


class Example(Settings):
    region: str
    http: Door = Door()

    @field_validator("region")
    @classmethod
    def _one_word(cls, region: str) -> str:
        if " " in region:
            raise ValueError("must be one word")
        return region

    @model_validator(mode="after")
    def _away_from_the_edge(self) -> "Example":
        if self.region == "edge" and self.http.port == 0:
            raise ValueError("http.port: an edge needs a port of its own")
        return self


def load(text: str, environment: dict[str, str] | None = None, **flags: Any) -> Example:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load_settings(Example, text, "s.yaml", environment or {}, named)


def problems(text: str, environment: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(text, environment)
    return caught.value.problems


def test_file_then_environment_then_flags() -> None:
    text = "region: a\nhttp: {port: 1}\n"
    assert load(text).http.port == 1
    assert load(text, {"GIR_HTTP__PORT": "2"}).http.port == 2
    assert load(text, {"GIR_HTTP__PORT": "2"}, http__port=3).http.port == 3
    assert load(text, http__port=None).http.port == 1
    assert load("", {"GIR_REGION": "x"}).region == "x"
    assert load("region: a\nhttp: null", {"GIR_HTTP__PORT": "2"}).http.port == 2


def test_variables_for_other_services_are_left_alone() -> None:
    others = {"GIR_OTHER": "1", "GIR_OTHER__PORT": "1", "GIR_HTTP_PORT": "1", "HTTP__PRT": "1", "PATH": "/"}
    assert load("region: a", others).http.port == 8080


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("GIR_HTTP__PRT", "GIR_HTTP__PRT: unknown setting; settings of http are host, port"),
        ("GIR_HTTP", "GIR_HTTP: unknown setting; settings of http are host, port"),
        ("GIR_HTTP__PORT__X", "GIR_HTTP__PORT__X: unknown setting; settings of http are host, port"),
        ("GIR_REGION__X", "GIR_REGION__X: unknown setting; GIR_REGION has no parts"),
    ],
)
def test_a_variable_that_sets_nothing_of_a_known_section_is_refused_by_name(
    variable: str, sentence: str
) -> None:
    assert problems("region: a", {variable: "1"}) == (sentence,)
    assert problems("", {variable: "1"}) == (sentence, "s.yaml: region: required and not given")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("region: a\nregoin: b", "s.yaml: regoin: unknown setting"),
        ("region: a\nhttp: {prt: 1}", "s.yaml: http.prt: unknown setting"),
        ("http: {port: 1}", "s.yaml: region: required and not given"),
        (
            "region: a\nhttp: {port: 70000}",
            "s.yaml: http.port: 70000: Input should be less than or equal to 65535",
        ),
        ("region: a b", "s.yaml: region: 'a b': must be one word"),
        ("region: {a: 1}", "s.yaml: region: a mapping of 1: Input should be a valid string"),
        ("- a", "s.yaml: must be a mapping of settings"),
        ("region: [", "s.yaml:1:10: not valid YAML"),
        ("region: !!python/object:os.system {}", "not valid YAML"),
        ("x" * (SETTINGS_MAX_BYTES + 1), "larger than"),
    ],
)
def test_each_problem_is_named(text: str, sentence: str) -> None:
    assert sentence in "\n".join(problems(text))


def test_a_bad_variable_is_refused_like_a_bad_file() -> None:
    assert "http.port: 'many'" in problems("region: a", {"GIR_HTTP__PORT": "many"})[0]


def test_a_rule_over_the_whole_document_is_one_sentence() -> None:
    assert problems("region: edge\nhttp: {port: 0}") == (
        "s.yaml: http.port: an edge needs a port of its own",
    )

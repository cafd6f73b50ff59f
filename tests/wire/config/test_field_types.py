from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from services.wire.config.field_types import (
    Given,
    Host,
    HostPort,
    HttpUrl,
    JurisdictionCode,
    KeyId,
    Kind,
    Many,
    Model,
    Name,
    Origin,
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Name, "eu-west.1"),
        (JurisdictionCode, "eu"),
        (KeyId, "gir_1-A"),
        (Model, "meta-llama/Llama-3.1-8B:latest"),
        (Host, "pod-0.llama.svc.cluster.local"),
        (Host, "10.0.0.1"),
        (Host, "[fe80::1]"),
        (HostPort, "pod_0:8000"),
        (HostPort, "[::1]:9002"),
        (HttpUrl, "http://host/readyz?full=1"),
        (Origin, "http://[::1]:8000"),
    ],
)
def test_legal_values_stay_as_they_are(kind: Any, value: str) -> None:
    assert TypeAdapter(kind).validate_python(value) == value


@pytest.mark.parametrize(
    ("kind", "value", "rule"),
    [
        (Name, "EU", "must be 1 to 63 characters"),
        (Name, "", "must be 1 to 63 characters"),
        (Name, "a\n", "must be 1 to 63 characters"),
        (JurisdictionCode, "e", "2 to 32 characters"),
        (KeyId, "a b", "1 to 64 characters"),
        (Model, "", "printable characters without spaces"),
        (Model, "a b", "printable characters without spaces"),
        (Model, "m" * 257, "1 to 256"),
        (Host, "::1", "must be a host name"),
        (Host, "a/b", "must be a host name"),
        (HostPort, "host", "must be host:port"),
        (HostPort, ":80", "must be host:port"),
        (HostPort, "::1:80", "must be host:port"),
        (HostPort, "host:\uff18\uff10", "must be host:port"),
        (HostPort, "host:0", "the port must lie in 1..65535"),
        (HostPort, "host:65536", "the port must lie in 1..65535"),
        (HostPort, "host:" + "9" * 5000, "the port must lie in 1..65535"),
        (HttpUrl, "ftp://host", "must be an http"),
        (HttpUrl, "http://", "must be an http"),
        (HttpUrl, "https://host", "this version speaks no TLS"),
        (HttpUrl, "http://host:99999", "must be an http"),
        (HttpUrl, "http://host:0", "must be an http"),
        (HttpUrl, "http://[::1", "must be an http"),
        (HttpUrl, "http://user:secret@host", "must not hold credentials"),
        (HttpUrl, "http://host/#x", "must not have a fragment"),
        (HttpUrl, "http://host/metrics ", "visible ASCII"),
        (HttpUrl, "http://h/" + "x" * 600, "at most 512"),
        (Origin, "http://host/path", "must be an origin"),
        (Origin, "http://host?x=1", "must be an origin"),
    ],
)
def test_illegal_values_are_refused_with_the_rule(kind: Any, value: str, rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        TypeAdapter(kind).validate_python(value)


def test_a_trailing_slash_of_an_origin_is_dropped() -> None:
    assert TypeAdapter(Origin).validate_python("http://host:80/") == "http://host:80"


class Sample(Kind):
    some_numbers: Many[int] = ()


def test_kinds_are_spelt_in_camel_case_and_read_exact_types() -> None:
    def read(tree: object) -> Sample:
        return Sample.model_validate(tree, by_alias=True, by_name=False)

    assert read({"someNumbers": [1, 2]}).some_numbers == (1, 2)
    for wrong in (
        {"some_numbers": [1]},
        {"someNumbers": ["1"]},
        {"someNumbers": "12"},
        {"someNumbers": [True]},
    ):
        with pytest.raises(ValidationError):
            read(wrong)


def test_given_refuses_null() -> None:
    assert Given.func(5) == 5  # type: ignore[call-arg]  # The stub also allows a second argument.
    with pytest.raises(ValueError, match="leave the field out"):
        Given.func(None)  # type: ignore[call-arg]  # As above.

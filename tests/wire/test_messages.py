import math

import pytest

from services.wire.errors import UndecodableError
from services.wire.gen.gir.v1 import residency_pb2
from services.wire.messages import (
    MAX_EXACT_INT,
    jurisdiction,
    measured,
    name,
    optional_text,
    ordinal,
    parse,
    text,
    wall_ms,
)


def test_messages_are_parsed_within_their_bound() -> None:
    data = residency_pb2.NameSet(names=["a"]).SerializeToString()
    assert parse(residency_pb2.NameSet, data, "names", 100).names == ["a"]
    with pytest.raises(UndecodableError, match="names: 3 bytes exceed the bound of 2"):
        parse(residency_pb2.NameSet, data, "names", 2)
    with pytest.raises(UndecodableError, match=r"names: 2 bytes are no gir\.v1\.NameSet"):
        parse(residency_pb2.NameSet, b"\x0a\x05", "names", 100)


def test_names_are_checked() -> None:
    assert name("eu-west", "report", "region") == "eu-west"
    with pytest.raises(UndecodableError, match="report: region 'EU'"):
        name("EU", "report", "region")
    assert jurisdiction("eu", "report") == "eu"
    with pytest.raises(UndecodableError, match="report: jurisdiction 'EU'"):
        jurisdiction("EU", "report")


def test_text_is_printable_and_short() -> None:
    assert text("Größe 7", "report", "model") == "Größe 7"
    assert optional_text("", "report", "engine") == ""
    with pytest.raises(UndecodableError, match="report: model is missing"):
        text("", "report", "model")
    with pytest.raises(UndecodableError, match="engine has 4 characters, at most 3 are allowed"):
        optional_text("vllm", "report", "engine", 3)
    with pytest.raises(UndecodableError, match="characters that do not print"):
        optional_text("a\u202eb", "report", "engine")


def test_numbers_are_kept_only_where_they_stay_exact() -> None:
    assert ordinal(MAX_EXACT_INT, "report", "epoch") == MAX_EXACT_INT
    with pytest.raises(UndecodableError, match="epoch 9007199254740992 exceeds"):
        ordinal(MAX_EXACT_INT + 1, "report", "epoch")
    assert wall_ms(0, "report", "since_ms") == 0
    with pytest.raises(UndecodableError, match="since_ms -1 is negative"):
        wall_ms(-1, "report", "since_ms")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_senseless_measurements_are_unknown(value: float) -> None:
    assert measured(value) is None


@pytest.mark.parametrize("value", [0.0, -0.0, 1e308])
def test_measurements_are_kept(value: float) -> None:
    assert measured(value) == value

import pytest

from services.adapters.grpc.metadata import AmbiguousMetadataError, authorization, hand_off, single


def test_values_are_read_by_key() -> None:
    metadata = (("authorization", "Bearer abc"), ("x-gir-hand-off", "v1.k.p.m"), ("other", "x"))
    assert authorization(metadata) == b"Bearer abc"
    assert hand_off(metadata) == "v1.k.p.m"
    assert single(metadata, "absent") is None


def test_no_metadata_holds_nothing() -> None:
    assert authorization(None) is None
    assert hand_off(()) is None


@pytest.mark.parametrize("key", ["authorization", "x-gir-hand-off"])
def test_two_values_are_refused_rather_than_chosen_from(key: str) -> None:
    with pytest.raises(AmbiguousMetadataError, match=f"metadata {key} is given more than once"):
        single(((key, "a"), (key, "a")), key)


def test_binary_values_are_read_byte_for_byte() -> None:
    assert authorization((("authorization", b"Bearer \xff"),)) == b"Bearer \xff"


def test_characters_beyond_bytes_match_no_token() -> None:
    assert authorization((("authorization", "Bearer \u20ac"),)) == b"Bearer ?"

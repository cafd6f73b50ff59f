"""Hand-off tokens: round trip, and each way a cluster gateway refuses one."""

import base64
import dataclasses
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.inference import ModelName, RequestId, TenantId
from services.core.locality import ClusterId, Jurisdiction, Region
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.units import WallMs
from services.wire.hand_off import (
    CLOCK_LEEWAY_MS,
    MAX_LIFETIME_MS,
    MAX_TOKEN_BYTES,
    HandOff,
    HandOffKey,
    HandOffRefusal,
    HandOffRefusedError,
    Signer,
    derive_key,
    sign,
    verify,
)

NOW = WallMs(1_800_000_000_000)
EU_A, US_A = ClusterId("eu-a"), ClusterId("us-a")
KEY = derive_key("eu1", b"r" * 32, EU_A)
KEYS = {KEY.kid: KEY.secret}

names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
rules = st.builds(
    ResidencyRule,
    st.none() | st.frozensets(names.map(Jurisdiction), max_size=3),
    st.none() | st.frozensets(names.map(Region), max_size=3),
    st.frozensets(names.map(Jurisdiction), max_size=2),
    st.frozensets(names.map(Region), max_size=2),
)


def hand_off(
    rule: ResidencyRule = ANYWHERE, expires_in_ms: int = 30_000, audience: ClusterId = EU_A
) -> HandOff:
    return HandOff(
        audience,
        RequestId("r-1"),
        TenantId("acme"),
        ModelName("m"),
        rule,
        WallMs(NOW + expires_in_ms),
        WallMs(NOW + 5),
    )


def refusal(token: str | None, keys: dict[str, bytes] | None = None, now_ms: int = NOW) -> HandOffRefusal:
    with pytest.raises(HandOffRefusedError) as caught:
        verify(token, KEYS if keys is None else keys, EU_A, WallMs(now_ms))
    return caught.value.refusal


@given(rules, st.none() | st.integers(0, 2**53), st.integers(-(2**31), 2**31), st.none() | names)
def test_what_was_signed_is_what_is_read(
    rule: ResidencyRule, deadline: int | None, priority: int, session: str | None
) -> None:
    """verify(sign(x)) == x for every residency rule, and a rule never widens on the way."""
    said = HandOff(
        EU_A,
        RequestId("r"),
        TenantId("t"),
        ModelName("m/é"),
        rule,
        WallMs(NOW + 1),
        None if deadline is None else WallMs(deadline),
        priority,
        session,
    )
    assert verify(sign(said, KEY), KEYS, EU_A, NOW) == said


def test_a_token_for_another_cluster_is_refused_even_with_a_shared_key() -> None:
    assert refusal(sign(hand_off(audience=US_A), KEY)) is HandOffRefusal.WRONG_AUDIENCE


def test_each_cluster_has_its_own_key() -> None:
    other = derive_key("eu1", b"r" * 32, US_A)
    assert other.secret != KEY.secret
    assert refusal(sign(hand_off(), other)) is HandOffRefusal.BAD_SIGNATURE


@given(st.binary(min_size=1, max_size=100), st.text("abc", min_size=1, max_size=200))
def test_the_mac_is_plain_hmac_sha256(secret: bytes, model: str) -> None:
    """For keys below, at and above SHA-256's block, the mac is what `hmac` computes over all before the last dot."""
    signer = Signer(HandOffKey("k", secret))
    for name in (model, model + "x"):
        token = signer.sign(dataclasses.replace(hand_off(), model=ModelName(name))).decode()
        signed, _, mac = token.rpartition(".")
        expected = hmac.digest(secret, signed.encode(), "sha256")
        assert base64.urlsafe_b64decode(mac) == expected


def test_expiry_has_a_leeway_and_an_upper_bound() -> None:
    token = sign(hand_off(expires_in_ms=0), KEY)
    verify(token, KEYS, EU_A, WallMs(NOW + CLOCK_LEEWAY_MS))
    assert refusal(token, now_ms=NOW + CLOCK_LEEWAY_MS + 1) is HandOffRefusal.EXPIRED
    far = sign(hand_off(expires_in_ms=MAX_LIFETIME_MS + CLOCK_LEEWAY_MS + 1), KEY)
    assert refusal(far) is HandOffRefusal.LIFETIME_TOO_LONG


def test_two_keys_overlap_while_one_rotates() -> None:
    new = HandOffKey("eu2", b"n" * 32)
    both = {**KEYS, new.kid: new.secret}
    assert verify(sign(hand_off(), KEY), both, EU_A, NOW) == verify(sign(hand_off(), new), both, EU_A, NOW)
    assert refusal(sign(hand_off(), new)) is HandOffRefusal.UNKNOWN_KEY


@pytest.mark.parametrize("token", [None, ""])
def test_no_token_is_missing(token: str | None) -> None:
    assert refusal(token) is HandOffRefusal.MISSING


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "v2.eu1.e30.AA",
        "v1.eu1.e30",
        "v1.eu1.e30.x",
        "v1.eu1.é.AAAA",
        "v1." + "e" * MAX_TOKEN_BYTES + ".a.b",
    ],
)
def test_a_misshapen_token_is_malformed(token: str) -> None:
    assert refusal(token) is HandOffRefusal.MALFORMED


def test_a_signed_payload_of_the_wrong_shape_is_malformed() -> None:
    signed = f"v1.{KEY.kid}.{base64.urlsafe_b64encode(b'[1,2]').decode()}"
    mac = base64.urlsafe_b64encode(hmac.digest(KEY.secret, signed.encode(), "sha256")).decode()
    assert refusal(f"{signed}.{mac}") is HandOffRefusal.MALFORMED


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_breaks_it(position: int, change: int) -> None:
    """No single-byte change of a token is accepted with different meaning."""
    token = bytearray(sign(hand_off(), KEY).encode())
    token[position % len(token)] ^= change
    try:
        read = verify(token.decode("latin-1"), KEYS, EU_A, NOW)
    except HandOffRefusedError:
        return
    assert read == hand_off()


@given(st.text(max_size=300))
def test_garbage_is_refused_never_an_exception(text: str) -> None:
    """Any text raises HandOffRefusedError and nothing else."""
    with pytest.raises(HandOffRefusedError):
        verify(text, KEYS, EU_A, NOW)

"""The entry check: refusals in their order, and that a narrower place never lets more in."""

import pytest

from services.core.inference import ModelName, RequestId, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.outcomes import DropReason
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.units import WallMs
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.entry import DIRECT_TENANT, Entry, EntryRefusedError, direct_request, request_of
from services.endpoint_picker.settings import Accept
from services.wire.hand_off import HandOff, HandOffKey, derive_key, sign
from services.wire.status import DoorReason

CLUSTER = ClusterId("eu-west-1")
KEY = derive_key("k", b"s" * 32, CLUSTER)
NOW = WallMs(1_700_000_000_000)
EU_ONLY = ResidencyRule(allow_jurisdictions=frozenset({Jurisdiction("eu")}))


def entry(accept: Accept = Accept.ROUTER, jurisdiction: str = "eu", *keys: HandOffKey) -> Entry:
    place = Locality(Region("eu-west"), Jurisdiction(jurisdiction))
    return Entry(CLUSTER, place, accept, {key.kid: key.secret for key in keys or (KEY,)}, Counters())


def hand_off(allowed: ResidencyRule = ANYWHERE, deadline_ms: WallMs | None = None) -> HandOff:
    return HandOff(
        CLUSTER,
        RequestId("id"),
        TenantId("acme"),
        ModelName("m"),
        allowed,
        WallMs(NOW + 30_000),
        deadline_ms,
        priority=2,
        session="chat-7",
    )


def reason_of(found: Entry, value: HandOff | None) -> DropReason | DoorReason | None:
    try:
        found.admit(value, NOW)
    except EntryRefusedError as error:
        return error.reason
    return None


def test_a_signed_hand_off_is_believed_whole() -> None:
    given = hand_off(EU_ONLY)
    assert entry().authenticate(sign(given, KEY), NOW) == given
    request = request_of(given)
    assert (request.request_id, request.tenant.id, request.model) == ("id", "acme", "m")
    assert (request.priority, request.tenant.grants.priority_ceiling, request.session) == (2, 2, "chat-7")
    assert request.residency == request.tenant.grants.residency == EU_ONLY


def test_two_keys_overlap_while_one_is_rotated() -> None:
    newer = derive_key("k2", b"t" * 32, CLUSTER)
    found = entry(Accept.ROUTER, "eu", KEY, newer)
    for key in (KEY, newer):
        assert found.authenticate(sign(hand_off(), key), NOW) == hand_off()


def test_without_a_token_only_direct_access_enters() -> None:
    with pytest.raises(EntryRefusedError, match=r"\(missing\)"):
        entry().authenticate(None, NOW)
    assert entry(Accept.DIRECT).authenticate(None, NOW) is None
    with pytest.raises(EntryRefusedError, match=r"\(malformed\)"):
        entry(Accept.DIRECT).authenticate("x", NOW)
    assert direct_request(RequestId("id"), ModelName("m")).tenant.id == DIRECT_TENANT


def test_draining_comes_before_deadline_comes_before_residency() -> None:
    found = entry(jurisdiction="us")
    late = hand_off(EU_ONLY, deadline_ms=NOW)
    found.draining = True
    assert reason_of(found, late) is DropReason.DRAINED
    assert reason_of(found, None) is DropReason.DRAINED
    found.draining = False
    assert reason_of(found, late) is DropReason.DEADLINE_EXCEEDED
    assert reason_of(found, hand_off(EU_ONLY)) is DropReason.RESIDENCY_UNSATISFIABLE
    assert reason_of(found, hand_off()) is None
    assert reason_of(found, None) is None
    assert found.counters.rejections == {"drained": 2, "deadline_exceeded": 1, "residency_unsatisfiable": 1}


def test_only_a_drain_asks_to_come_back() -> None:
    found = entry()
    found.draining = True
    with pytest.raises(EntryRefusedError) as caught:
        found.admit(hand_off(), NOW)
    assert caught.value.retry_after is not None

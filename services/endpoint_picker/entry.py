"""The entry check behind every door: who sent this request, may it be here, and is anybody being let in.

A door reads its own headers or metadata and asks; the answer is an `InferenceRequest` or a refusal with its
reason. Pure of sockets; time and ids are arguments. Apart from the doors so that both refuse alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.core.inference import Grants, InferenceRequest, ModelName, RequestId, Tenant, TenantId
from services.core.locality import ClusterId, Locality
from services.core.outcomes import DropReason
from services.core.residency import ANYWHERE
from services.core.units import Duration, WallMs, seconds
from services.endpoint_picker.counters import Counters
from services.endpoint_picker.settings import Accept
from services.wire.hand_off import HandOff, HandOffRefusedError, verify
from services.wire.status import DoorReason

DRAINED_RETRY_AFTER = seconds(2)
DIRECT_TENANT = TenantId("direct")
"""Who a request belongs to when no router vouches for it (`accept: direct`)."""


class EntryRefusedError(Exception):
    """The request may not enter; `reason` is a row of the status table."""

    def __init__(
        self, reason: DropReason | DoorReason, message: str, retry_after: Duration | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


@dataclass(slots=True)
class Entry:
    """The rules of one cluster's doors. `draining` is set from outside."""

    cluster: ClusterId
    place: Locality
    accept: Accept
    keys: Mapping[str, bytes]
    counters: Counters
    draining: bool = False

    def authenticate(self, token: str | None, now_ms: WallMs) -> HandOff | None:
        """Return what a router signed; None for a direct request where those are accepted.

        A token that is there must be valid even then: a router's request is never taken for a stranger's.
        """
        if token is None and self.accept is Accept.DIRECT:
            return None
        try:
            return verify(token, self.keys, self.cluster, now_ms)
        except HandOffRefusedError as error:
            self.counters.hand_off_refusals[error.refusal.value] += 1
            raise EntryRefusedError(
                DoorReason.HAND_OFF_REFUSED,
                "This gateway serves requests that a router of the fleet hands over; "
                f"the hand-off token is refused ({error.refusal.value}).",
            ) from None

    def admit(self, hand_off: HandOff | None, now_ms: WallMs) -> None:
        """Refuse while draining, after the deadline, and what must not be processed in this place."""
        if self.draining:
            self._refuse(DropReason.DRAINED, "This cluster is being drained.", DRAINED_RETRY_AFTER)
        if hand_off is None:
            return
        if hand_off.deadline_ms is not None and hand_off.deadline_ms <= now_ms:
            self._refuse(DropReason.DEADLINE_EXCEEDED, "The request's deadline has passed.")
        if not hand_off.allowed.allows(self.place):
            self._refuse(
                DropReason.RESIDENCY_UNSATISFIABLE,
                "The residency rules of this request do not allow the place where this cluster stands.",
            )

    def _refuse(self, reason: DropReason, message: str, retry_after: Duration | None = None) -> None:
        self.counters.rejections[reason.value] += 1
        raise EntryRefusedError(reason, message, retry_after)


def request_of(hand_off: HandOff) -> InferenceRequest:
    """Return the request a router handed over."""
    grants = Grants(residency=hand_off.allowed, priority_ceiling=hand_off.priority)
    tenant = Tenant(hand_off.tenant, grants)
    return InferenceRequest(
        hand_off.request_id,
        tenant,
        hand_off.model,
        hand_off.allowed,
        priority=hand_off.priority,
        session=hand_off.session,
    )


def direct_request(request_id: RequestId, model: ModelName) -> InferenceRequest:
    """Return the request of a caller without a router."""
    return InferenceRequest(request_id, Tenant(DIRECT_TENANT, Grants()), model, ANYWHERE)

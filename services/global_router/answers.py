"""Headers of a router's answers: which request, served where, at what cost.

Rendering only. Apart from the life cycle because live requests and doors answer too.
"""

from services.adapters.http.responder import Header, Responder
from services.core.units import NS_PER_MS
from services.global_router.hops import Hop
from services.global_router.records import DecisionRecord
from services.wire.openai.errors import ErrorAnswer


def id_headers(record: DecisionRecord) -> list[Header]:
    """Return the two id headers of every answer: the client's own echoed, and the router's."""
    own = record.request_id.encode("ascii")
    return [(b"x-request-id", record.client_request_id.encode("ascii") or own), (b"x-gir-request-id", own)]


def respond_error(responder: Responder, record: DecisionRecord, answer: ErrorAnswer) -> None:
    """Send an error of our own with the ids of the request."""
    record.status = answer.status
    headers = [(name.encode(), value.encode()) for name, value in answer.headers]
    responder.respond(answer.status, [*headers, *id_headers(record)], answer.body)


def answer_block(record: DecisionRecord, hop: Hop | None, attempts: int) -> bytes:
    """Return the rendered header block that a relayed answer gains; notes the place in the record."""
    place = b""
    if hop is not None:
        place = hop.place_headers
        record.cluster, record.region = hop.cluster, hop.locality.region
        record.jurisdiction = hop.locality.jurisdiction
    own = record.request_id.encode("ascii")
    return (
        b"x-request-id: %b\r\nx-gir-request-id: %b\r\n%bx-gir-attempts: %d\r\nx-gir-decision-ms: %.3f\r\n"
        % (
            record.client_request_id.encode("ascii") or own,
            own,
            place,
            attempts,
            record.decide_ns / NS_PER_MS,
        )
    )

"""Control headers of a client's request: what it may say about its own request, and how far.

None of them says who the caller is, and none is ever a key. `x-gir-residency` only narrows and a
malformed one is an error, never ignored: ignoring it would serve a request where its sender asked
it not to go. Apart from the OpenAI bodies because gRPC metadata carries the same names.
"""

import re
from collections.abc import Callable
from typing import Final

from services.core.inference import TrafficClass
from services.core.locality import JURISDICTION_PATTERN, NAME_PATTERN, Jurisdiction, Region
from services.core.residency import ANYWHERE, ResidencyRule
from services.core.values import value

RESIDENCY: Final = b"x-gir-residency"
TRAFFIC_CLASS: Final = b"x-gir-class"
SESSION: Final = b"x-gir-session"
CLIENT_REQUEST_ID: Final = b"x-request-id"

CLIENT_ID_MAX_CHARS: Final = 128
SESSION_MAX_CHARS: Final = 128
RESIDENCY_MAX_PLACES: Final = 32
"""More places than a fleet has jurisdictions; bounds the work and the hand-off token."""

STRIPPED_PREFIXES: Final = (
    b"x-gir-",
    b"x-gateway-",
    b"x-llm-d-",
    b"x-prefiller-",
    b"x-data-parallel-",
    b"x-encoder-",
)
"""Decision headers of this router, of endpoint pickers and of the sidecars beside model servers, which connect
to whatever host such a header names: a client that sends one is not believed."""

STRIPPED_LETTER: Final = b"_"
"""A header with it in its name ends here too: some servers read `x_gir_class` as `x-gir-class`."""

_VISIBLE: Final = re.compile(rb"[\x21-\x7e]{1,%d}\Z" % CLIENT_ID_MAX_CHARS)
_CLASSES: Final = {member.value.encode(): member for member in TrafficClass}
_REGION: Final = "region:"


class BadHeaderError(Exception):
    """A control header is malformed; `header` names it and the message says the rule."""

    def __init__(self, header: bytes, rule: str) -> None:
        super().__init__(f"Header {header.decode()}: {rule}.")
        self.header = header.decode()


@value
class Controls:
    """What a client asked for by header. `client_request_id` is empty when absent or not presentable."""

    client_request_id: str = ""
    traffic_class: TrafficClass = TrafficClass.INTERACTIVE
    residency: ResidencyRule = ANYWHERE
    session: str | None = None


NO_CONTROLS: Final = Controls()


def read_controls(header: Callable[[bytes], bytes | None]) -> Controls:
    """Return the controls from a lookup of lower-case names; raises `BadHeaderError`.

    An `x-request-id` that is too long or not visible ASCII is dropped: it is only an echo, and no
    request should fail for it.
    """
    client_id, wanted = header(CLIENT_REQUEST_ID), header(TRAFFIC_CLASS)
    places, session = header(RESIDENCY), header(SESSION)
    if client_id is None and wanted is None and places is None and session is None:
        return NO_CONTROLS
    return Controls(
        client_request_id=client_id.decode() if client_id is not None and _VISIBLE.match(client_id) else "",
        traffic_class=_traffic_class(wanted),
        residency=ANYWHERE if places is None else read_residency(places),
        session=_session(session),
    )


def read_residency(value: bytes) -> ResidencyRule:
    """Return the rule of an `x-gir-residency` value: `eu`, `eu, uk` or `eu, region:eu-west`.

    Jurisdictions and regions each form an allow list, and both must hold (they only narrow).
    """
    jurisdictions: set[Jurisdiction] = set()
    regions: set[Region] = set()
    places = value.decode("latin-1").split(",")
    if len(places) > RESIDENCY_MAX_PLACES:
        raise BadHeaderError(RESIDENCY, f"at most {RESIDENCY_MAX_PLACES} places")
    for place in places:
        name = place.strip()
        if name.startswith(_REGION) and NAME_PATTERN.match(name.removeprefix(_REGION)):
            regions.add(Region(name.removeprefix(_REGION)))
        elif JURISDICTION_PATTERN.match(name):
            jurisdictions.add(Jurisdiction(name))
        else:
            raise BadHeaderError(RESIDENCY, "must list jurisdictions ([a-z0-9-]{2,32}) or region:NAME")
    return ResidencyRule(
        frozenset(jurisdictions) if jurisdictions else None, frozenset(regions) if regions else None
    )


def _traffic_class(value: bytes | None) -> TrafficClass:
    if value is None:
        return TrafficClass.INTERACTIVE
    found = _CLASSES.get(value)
    if found is None:
        raise BadHeaderError(TRAFFIC_CLASS, "must be interactive, standard or batch")
    return found


def _session(value: bytes | None) -> str | None:
    if value is None:
        return None
    if not _VISIBLE.match(value) or len(value) > SESSION_MAX_CHARS:
        raise BadHeaderError(SESSION, f"must be 1 to {SESSION_MAX_CHARS} visible ASCII characters")
    return value.decode()

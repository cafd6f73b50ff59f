"""What headers say of how a request is to be picked for in tier 1: flow, objective, targets, session.

None of them says who the caller is; whether one is believed is the entry's to say. Malformed ones are errors,
never ignored. Names, in both generations, stand in `ext_proc/metadata`; tier 2's own are in `control_headers`.
"""

import re
from collections.abc import Callable
from typing import Final

from services.core.values import value
from services.wire.control_headers import SESSION, BadHeaderError
from services.wire.ext_proc.metadata import (
    FAIRNESS_ID,
    MODEL_REWRITE,
    OBJECTIVE,
    PREFER,
    SESSION_ID,
    SESSION_TOKEN,
    TTFT_SLO_MS,
    first_of,
)

VALUE_MAX_CHARS: Final = 256
"""Longer than any model name, tenant or session; these become keys of queues and labels."""
SLO_MAX_MS: Final = 3_600_000.0
DEFAULT_FLOW: Final = "default-flow"
"""The flow of requests that name none (the field's word)."""

_VISIBLE: Final = re.compile(rb"[\x21-\x7e]{1,%d}\Z" % VALUE_MAX_CHARS)
_NUMBER: Final = re.compile(rb"\d{1,7}(?:\.\d{1,3})?\Z")


@value
class PickControls:
    """One request's wishes. `session_token` names the endpoint itself, `session` only a conversation."""

    fairness_id: str = DEFAULT_FLOW
    objective: str | None = None
    model_rewrite: str | None = None
    ttft_slo_ms: float | None = None
    session: str | None = None
    session_token: str | None = None
    if_available: bool = False


NO_PICK_CONTROLS: Final = PickControls()


def read_pick_controls(header: Callable[[bytes], bytes | None]) -> PickControls:
    """Return the controls from a lookup of lower-case names; raises `BadHeaderError`."""
    flow, objective = first_of(header, FAIRNESS_ID), first_of(header, OBJECTIVE)
    rewrite, slo = first_of(header, MODEL_REWRITE), first_of(header, TTFT_SLO_MS)
    session, token, prefer = first_of(header, (SESSION, SESSION_ID)), header(SESSION_TOKEN), header(PREFER)
    if all(found is None for found in (flow, objective, rewrite, slo, session, token, prefer)):
        return NO_PICK_CONTROLS
    return PickControls(
        fairness_id=_text(flow, FAIRNESS_ID[0]) or DEFAULT_FLOW,
        objective=_text(objective, OBJECTIVE[0]),
        model_rewrite=_text(rewrite, MODEL_REWRITE[0]),
        ttft_slo_ms=_slo(slo),
        session=_text(session, SESSION),
        session_token=_text(token, SESSION_TOKEN),
        if_available=prefer is not None and _prefers_available(prefer),
    )


def _text(found: bytes | None, header: bytes) -> str | None:
    if found is None:
        return None
    if not _VISIBLE.match(found):
        raise BadHeaderError(header, f"must be 1 to {VALUE_MAX_CHARS} visible ASCII characters")
    return found.decode()


def _slo(found: bytes | None) -> float | None:
    if found is None:
        return None
    if not _NUMBER.match(found) or not 0 < float(found) <= SLO_MAX_MS:
        raise BadHeaderError(TTFT_SLO_MS[0], f"must be milliseconds above 0, at most {SLO_MAX_MS:.0f}")
    return float(found)


def _prefers_available(found: bytes) -> bool:
    """Whether `if-available` is among the preferences (RFC 7240 section 2: tokens, case-insensitive)."""
    return any(part.partition(b";")[0].strip().lower() == b"if-available" for part in found.split(b","))

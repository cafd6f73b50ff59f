"""Taking a request in: what a door read, turned into what the life cycle works on.

One way for every door that carries OpenAI bodies, so that HTTP and ext_proc refuse and believe alike. With a
router's hand-off, tenant, priority and session are what it signed; without one (`accept: direct`) the gateway in
front vouches for the control headers. No sockets, no clock.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from services.core.inference import InferenceRequest, RequestId
from services.core.models.names import is_model_name
from services.core.prefix.blocks import Prompt
from services.core.units import WallMs
from services.endpoint_picker.entry import EntryRefusedError, direct_request, request_of
from services.wire.hand_off import HandOff
from services.wire.openai.prompts import read_prompt
from services.wire.openai.requests import BadBodyError, read_body
from services.wire.pick_controls import DEFAULT_FLOW, NO_PICK_CONTROLS, PickControls, read_pick_controls
from services.wire.status import DoorReason

Header = Callable[[bytes], bytes | None]
"""Looks up a header by its lower-case name."""


class RequestIds(Protocol):
    """Mints request ids."""

    def request_id(self) -> RequestId:
        """Return a new id."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What a door knows of one request.

    `inference.model` is the name the client gave. `body` is the JSON as it came, `prompt` what it asks to be
    read, both empty where the wire carries none. `flow` is whose share of a contended pool it uses. `among` are
    ids of the only pods the pick may come from (a gateway's subset hint; None: no hint), `tried` those that it
    already failed on. `handed_over`: a router vouches for it. `traceparent` is the caller's trace, if any.
    `headers` are those that the scheduling profile reads, by lower-case name. `deadline_ms`: nobody wants the answer
    after it.
    """

    inference: InferenceRequest
    body: bytes = b""
    prompt: Prompt | None = None
    flow: str = DEFAULT_FLOW
    controls: PickControls = NO_PICK_CONTROLS
    among: Collection[str] | None = None
    tried: Collection[str] = ()
    explain: bool = False
    handed_over: bool = False
    traceparent: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    deadline_ms: WallMs | None = None


@dataclass(slots=True)
class Reception:
    """Makes intakes. `reads_prompts`: whether anybody needs prompts; `headers`: those that the profile reads."""

    ids: RequestIds
    reads_prompts: bool = True
    headers: Collection[str] = ()

    def read(
        self, hand_off: HandOff | None, body: bytes, header: Header, among: Collection[str] | None = None
    ) -> Intake:
        """Return the intake of a request whose entry was checked.

        Raises `BadBodyError`, `BadHeaderError`, and `EntryRefusedError` for a body that asks for more than its
        token grants: callers of `Route` hold tokens too, so its bearer need not be the router that chose the model.
        """
        if self.reads_prompts:
            read, prompt = read_prompt(body)
        else:
            read, prompt = read_body(body), None
        if not is_model_name(read.model):
            raise BadBodyError(
                DoorReason.INVALID_VALUE,
                "Invalid value for 'model': a name has printable characters and no spaces.",
                "model",
            )
        if hand_off is None:
            plain = direct_request(self.ids.request_id(), read.model)
            controls = read_pick_controls(header)
            flow, session = controls.fairness_id, controls.session
        elif read.model != hand_off.model:
            raise EntryRefusedError(
                DoorReason.HAND_OFF_REFUSED,
                "The hand-off token is for another model than the one asked for.",
            )
        else:
            plain, controls = request_of(hand_off), NO_PICK_CONTROLS
            flow, session = hand_off.tenant, hand_off.session
        inference = InferenceRequest(
            plain.request_id,
            plain.tenant,
            read.model,
            plain.residency,
            priority=plain.priority,
            prompt_tokens=read.prompt_tokens,
            max_output_tokens=read.max_output_tokens,
            stream=read.stream,
            session=session,
        )
        traceparent = header(b"traceparent")
        return Intake(
            inference,
            body,
            prompt,
            flow,
            controls,
            among,
            handed_over=hand_off is not None,
            traceparent=None if traceparent is None else traceparent.decode("latin-1"),
            headers=self._read(header) if self.headers else {},
            deadline_ms=None if hand_off is None else hand_off.deadline_ms,
        )

    def _read(self, header: Header) -> dict[str, str]:
        found = ((name, header(name.encode())) for name in self.headers)
        return {name: text.decode("latin-1") for name, text in found if text is not None}

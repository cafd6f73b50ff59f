"""Plays a flow-control story: commands in text, what callers are told as text, in virtual time.

One story is one picker. A pool has so many slots and is saturated when they are taken; requests take a slot until
`finish` frees it, oldest first. Apart from the test so that a story can be played by hand too.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from services.adapters.system.clock import SystemClock
from services.core.admission.settings import BandSettings, Fairness, FlowControlSettings
from services.core.admission.tickets import Stage, Ticket
from services.core.outcomes import DropReason
from services.core.units import NS_PER_S, Duration, Instant, after, seconds
from services.endpoint_picker.flow_control import FlowControl

START = Instant(1_000 * NS_PER_S)


@dataclass
class Slots:
    """A pool's gauge: the share of its slots that are taken; None while it has no slot at all."""

    total: int = 0
    taken: int = 0

    def bound(self, _now: Instant) -> float | None:
        return self.taken / self.total if self.total else None

    exact = bound

    def admitted(self, _tokens: int) -> None:
        self.taken += 1

    def ended(self) -> None:
        self.taken -= 1


@dataclass
class Story:
    """The state of one story; `play` takes a command and returns what it showed."""

    at: Instant = START
    pools: defaultdict[str, Slots] = field(default_factory=lambda: defaultdict(Slots))
    sent: list[Ticket] = field(default_factory=list)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    flow: FlowControl = field(init=False)

    def __post_init__(self) -> None:
        self._make(FlowControlSettings())

    def play(self, command: str) -> str:
        verb, *words = command.split()
        plain = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        performed: Callable[[list[str], dict[str, str]], None] = getattr(self, f"do_{verb}")
        performed(plain, options)
        shown, self.lines = self.lines, []
        return "\n".join(shown) or "(nothing)"

    def do_settings(self, _plain: list[str], options: dict[str, str]) -> None:
        band = BandSettings(
            max_requests=int(options.get("band", "5000")),
            fairness=Fairness(options.get("fairness", Fairness.MAX_MIN.value)),
        )
        self._make(
            FlowControlSettings(
                max_requests=int(options["all"]) if "all" in options else None,
                default_request_ttl=seconds(float(options.get("ttl", "60"))),
                no_endpoint_request_ttl=seconds(float(options.get("empty", "0"))),
                default_priority_band=band,
                default_negative_priority_band=band,
                enable_eviction="evict" in options,
            )
        )

    def do_slots(self, _plain: list[str], options: dict[str, str]) -> None:
        for pool, total in options.items():
            self.pools[pool].total = int(total)
        self.flow.refresh(self.at)

    def do_request(self, names: list[str], options: dict[str, str]) -> None:
        for name in names:
            ticket = Ticket(
                name,
                options.get("tenant", "acme"),
                options.get("pool", "llama"),
                int(options.get("priority", "0")),
                self.at,
                tokens=int(options.get("tokens", "1")),
            )
            self.tickets[name] = ticket
            at_once = self.flow.admit(ticket, self.at, self._dispatched(ticket), self._dropped(ticket))
            if at_once:
                self._dispatched(ticket)()
            elif ticket.stage is Stage.QUEUED:
                self._show(f"{name} waits")

    def do_begin(self, names: list[str], _options: dict[str, str]) -> None:
        for name in names:
            self.flow.committed(self.tickets[name])

    def do_finish(self, plain: list[str], options: dict[str, str]) -> None:
        """`finish N` ends the N oldest of a pool, `finish NAME` that one."""
        pool = options.get("pool", "llama")
        for word in plain:
            if word.isdigit():
                ended = [ticket for ticket in self.sent if ticket.pool == pool][: int(word)]
            else:
                ended = [self.tickets[word]]
            for ticket in ended:
                if ticket in self.sent:
                    self.sent.remove(ticket)
                self.flow.ended(ticket, self.at)

    def do_run(self, plain: list[str], _options: dict[str, str]) -> None:
        """`run 3s` lets time pass; deadlines are met as they come."""
        end = after(self.at, seconds(float(plain[0].removesuffix("s"))))
        while (deadline := self.flow.next_deadline(self.at)) is not None and deadline <= end:
            self.at = max(self.at, deadline)
            self.flow.tick(self.at)
        self.at = end

    def do_drain(self, _plain: list[str], _options: dict[str, str]) -> None:
        self.flow.drain()

    def do_stop(self, _plain: list[str], _options: dict[str, str]) -> None:
        self.flow.shut_down(self.at)

    def do_show(self, _plain: list[str], _options: dict[str, str]) -> None:
        for row in self.flow.figures().queues:
            self.lines.append(f"{row.pool} priority {row.priority} {row.flow}: {row.queue_size} waiting")

    def _make(self, settings: FlowControlSettings) -> None:
        # Never started, so it asks no clock: the story ticks it.
        self.flow = FlowControl(settings, self.pools.__getitem__, SystemClock())

    def _dispatched(self, ticket: Ticket) -> Callable[[], None]:
        def sent() -> None:
            self.sent.append(ticket)
            self._show(f"{ticket.request_id} sent")

        return sent

    def _dropped(self, ticket: Ticket) -> Callable[[DropReason, str, Duration | None], None]:
        def dropped(reason: DropReason, _message: str, wait: Duration | None) -> None:
            told = "" if wait is None else f", retry after {wait / NS_PER_S:.1f} s"
            self._show(f"{ticket.request_id} {reason.value}{told}")

        return dropped

    def _show(self, what: str) -> None:
        self.lines.append(f"{(self.at - START) / NS_PER_S:8.3f}  {what}")

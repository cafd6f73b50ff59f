"""Plays a health story: commands in text, effects out as text, in virtual time.

One story is one router's view of a fleet. `run` lets clusters report every 0.5 s and their
probes be answered, refused or swallowed while time passes; the other commands do one thing
at the present instant. Apart from the test so that a story can be played by hand too.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from services.core.fleet import HealthReport, PoolReport, ReportId
from services.core.health.draft import EMPTY, FleetState
from services.core.health.effects import Effect, describe
from services.core.health.events import (
    BackPressured,
    ConnectFailed,
    FleetEvent,
    GatewayErrored,
    ListLoaded,
    PolicyChanged,
    ProbeFinished,
    ReportArrived,
    ReportRemoved,
    TrafficSucceeded,
    TrialFinished,
    TrialStarted,
)
from services.core.health.fleet_state import apply, next_deadline, tick
from services.core.health.probes import ProbeOrder, next_probe_at, probes_due
from services.core.health.snapshot import snapshot
from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import ClusterSpec, ModelPolicy, PolicySnapshot
from services.core.units import NS_PER_MS, NS_PER_S, Duration, Instant, WallMs, in_ms, ms, seconds

START = Instant(1_000 * NS_PER_S)
WALL_START_MS = 1_750_000_000_000
REPORT_EVERY = ms(500)
ANSWER_RTT = ms(20)
REFUSAL_RTT = ms(1)
MODEL = ModelName("llama")
HERE = Locality(Region("eu-west"), Jurisdiction("eu"))
SINGLE_EVENTS: dict[str, Callable[[ClusterId], FleetEvent]] = {
    "success": TrafficSucceeded,
    "connect-failure": ConnectFailed,
    "gateway-error": GatewayErrored,
    "back-pressure": BackPressured,
    "trial": TrialStarted,
    "trial-end": TrialFinished,
    "tombstone": ReportRemoved,
}


@dataclass
class Publisher:
    """The cluster's side: what it would say next."""

    epoch: int = 1
    sequence: int = 0
    wall_skew_ms: int = 0
    next_at: Instant = START


@dataclass
class Story:
    """The state of one story; `play` takes a command and returns what it showed."""

    now: Instant = START
    policy: PolicySnapshot = field(default_factory=lambda: PolicySnapshot(1, WallMs(WALL_START_MS)))
    publishers: dict[ClusterId, Publisher] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = EMPTY
        self.started: dict[ClusterId, Instant] = {}
        self.in_flight: list[tuple[Instant, int, ProbeFinished]] = []
        self.order = itertools.count()
        self.shown: list[str] = []

    def play(self, command: str) -> str:
        """Run one command line and return what it showed, `(nothing)` when it showed nothing."""
        self.shown = []
        verb, *words = command.split()
        if verb in SINGLE_EVENTS:
            for cluster in words:
                self.feed(SINGLE_EVENTS[verb](ClusterId(cluster)))
        else:
            getattr(self, "do_" + verb)(words)
        return "\n".join(self.shown) or "(nothing)"

    def do_fleet(self, words: list[str]) -> None:
        """`fleet eu1 eu2 us1:unprobed`: the clusters of the policy; the name's letters are its region."""
        specs = []
        for word in words:
            name, _, option = word.partition(":")
            region = name.rstrip("0123456789")
            specs.append(
                ClusterSpec(
                    ClusterId(name),
                    Locality(Region(region), Jurisdiction(region)),
                    f"http://{name}:80",
                    probe_url="" if option == "unprobed" else f"http://{name}:80/readyz",
                )
            )
            self.publishers.setdefault(ClusterId(name), Publisher())
        self.policy = PolicySnapshot(
            self.policy.revision + 1, WallMs(WALL_START_MS), tuple(specs), (ModelPolicy(MODEL),)
        )
        self.feed(PolicyChanged(self.policy))

    def do_run(self, words: list[str]) -> None:
        """`run 5s report=a,b answer=a,b refuse=c`: time passes; who is in no list swallows probes."""
        options = dict(word.split("=") for word in words[1:])
        who = {key: set(value.split(",")) for key, value in options.items()}
        reporting, answering, refusing = (who.get(key, set()) for key in ("report", "answer", "refuse"))
        until = Instant(self.now + _span(words[0]))
        for cluster in reporting:
            publisher = self.publishers[ClusterId(cluster)]
            publisher.next_at = max(publisher.next_at, self.now)
        while True:
            self._start_probes(answering, refusing)
            moment = self._next_moment(reporting)
            if moment > until:
                break
            self.now = moment
            self._deliver(reporting)
            self._advance_state(*tick(self.state, self.now))
        self.now = until

    def do_pause(self, words: list[str]) -> None:
        """`pause 10s`: the process is stopped; probes in flight then end late, and failed."""
        self.now = Instant(self.now + _span(words[0]))
        waiting, self.in_flight = self.in_flight, []
        self._advance_state(*tick(self.state, self.now))
        for _, _, result in waiting:
            began_at = result.finished_at - result.rtt
            self.feed(ProbeFinished(result.cluster, False, self.now, Duration(self.now - began_at)))

    def do_report(self, words: list[str]) -> None:
        """`report a saturation=1.2 ready=1/2 draining replayed late=2s id=1.7 region=us`: one report, now."""
        options = dict(word.partition("=")[::2] for word in words[1:])
        report = self._report(ClusterId(words[0]), options)
        self.feed(ReportArrived(report, self.now, live="replayed" not in options))

    def do_list(self, words: list[str]) -> None:
        """`list a=1.5 b=1.9`: a list from the store with these report ids."""
        reports = [
            self._report(ClusterId(name), {"id": pair}) for name, pair in (w.split("=") for w in words)
        ]
        self.feed(ListLoaded(reports, self.now))

    def do_probe(self, words: list[str]) -> None:
        """`probe a ok|fail`: one result, now."""
        self.feed(ProbeFinished(ClusterId(words[0]), words[1] == "ok", self.now, ANSWER_RTT))

    def do_restart(self, words: list[str]) -> None:
        """`restart a clock=-3600s`: another publisher takes over, with epoch max(wall, last + 1)."""
        publisher = self.publishers[ClusterId(words[0])]
        publisher.wall_skew_ms = int(in_ms(_span(words[1].removeprefix("clock="))))
        publisher.epoch = max(self._wall_ms(publisher), publisher.epoch + 1)
        publisher.sequence = 0

    def do_show(self, words: list[str]) -> None:
        """`show [a ...]`: the candidates as routing sees them."""
        for candidate in snapshot(self.state, self.policy, HERE, self.now, 1).candidates:
            if words and candidate.id not in words:
                continue
            flags = [
                name
                for name, held in (
                    ("draining", candidate.draining),
                    ("ejected", candidate.ejected),
                    ("policy-mismatch", candidate.policy_mismatch),
                    ("probe-failing", not candidate.probing_ok),
                )
                if held
            ]
            numbers = f"ramp={candidate.ramp:.2f} confidence={candidate.load.confidence:.2f}"
            self.shown.append(" ".join([candidate.id, candidate.state.name, numbers, *flags]))
        if not words:
            self.shown += ["bus suspect"] * self.state.bus_suspect + ["router isolated"] * self.state.isolated

    def feed(self, event: FleetEvent) -> None:
        """Apply one event at the present instant and show its effects."""
        self._advance_state(*apply(self.state, event, self.now))

    def _advance_state(self, state: FleetState, effects: tuple[Effect, ...]) -> None:
        self.state = state
        self.shown += [f"{(self.now - START) / NS_PER_S:8.3f}  {describe(effect)}" for effect in effects]

    def _start_probes(self, answering: set[str], refusing: set[str]) -> None:
        for order in self._orders():
            ok = order.cluster in answering
            rtt = ANSWER_RTT if ok else REFUSAL_RTT if order.cluster in refusing else order.timeout
            result = ProbeFinished(order.cluster, ok, Instant(self.now + rtt), rtt)
            self.started[order.cluster] = self.now
            heapq.heappush(self.in_flight, (result.finished_at, next(self.order), result))

    def _orders(self) -> tuple[ProbeOrder, ...]:
        return probes_due(self.state.clusters, self.state.policy, self.started, self._busy(), self.now)

    def _busy(self) -> set[ClusterId]:
        return {result.cluster for _, _, result in self.in_flight}

    def _next_moment(self, reporting: set[str]) -> Instant:
        moments = [self.publishers[ClusterId(cluster)].next_at for cluster in reporting]
        moments += [finished_at for finished_at, _, _ in self.in_flight]
        deadline = next_deadline(self.state)
        probe = next_probe_at(self.state.clusters, self.state.policy, self.started, self._busy(), self.now)
        moments += [at for at in (deadline, probe) if at is not None]
        return min(moments)

    def _deliver(self, reporting: set[str]) -> None:
        while self.in_flight and self.in_flight[0][0] <= self.now:
            self.feed(heapq.heappop(self.in_flight)[2])
        for cluster in sorted(reporting):
            publisher = self.publishers[ClusterId(cluster)]
            if publisher.next_at <= self.now:
                publisher.next_at = Instant(publisher.next_at + REPORT_EVERY)
                self.feed(ReportArrived(self._report(ClusterId(cluster), {}), self.now))

    def _wall_ms(self, publisher: Publisher) -> int:
        return WALL_START_MS + (self.now - START) // NS_PER_MS + publisher.wall_skew_ms

    def _report(self, cluster: ClusterId, options: dict[str, str]) -> HealthReport:
        publisher = self.publishers[cluster]
        if "id" in options:
            epoch, sequence = (int(part) for part in options["id"].split("."))
            report_id = ReportId(epoch, sequence)
        else:
            publisher.sequence += 1
            report_id = ReportId(publisher.epoch, publisher.sequence)
        ready, total = (int(part) for part in options.get("ready", "4/4").split("/"))
        late_ms = int(in_ms(_span(options.get("late", "0s"))))
        region = options.get("region", cluster.rstrip("0123456789"))
        return HealthReport(
            cluster,
            report_id,
            Region(region),
            Jurisdiction(region),
            WallMs(self._wall_ms(publisher) - late_ms),
            (PoolReport("pool", MODEL, ready, total, saturation=float(options.get("saturation", "0.2"))),),
            draining="draining" in options,
        )


def _span(text: str) -> Duration:
    return ms(float(text[:-2])) if text.endswith("ms") else seconds(float(text[:-1]))

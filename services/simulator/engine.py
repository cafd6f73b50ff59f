"""The engine in time: steps of continuous batching as a pure function of submissions and `now`.

Time is an argument, nothing waits and nothing is random, so the live server and a virtual-time fleet run
the same model. Steps during which nothing can change are taken together: an engine nobody streams from
costs one event per change of its batch, however many tokens that is. Advancing in many small steps or in
one big one gives the same events.
"""

import heapq
from dataclasses import dataclass

from services.core.units import NS_PER_S, Duration, Instant
from services.simulator.events import (
    EngineEvent,
    EngineRequest,
    Finished,
    FinishReason,
    FirstToken,
    KvChange,
    Preempted,
    TokensProduced,
)
from services.simulator.profile import EngineProfile
from services.simulator.scheduler import Scheduler, Sequence, StepPlan
from services.simulator.tallies import Tallies

NO_DELAY = Duration(0)
LORA_SERIES_MAX = 1024
"""Sets of adapters an engine remembers; the real page keeps them for ever, a simulated one stays bounded."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How much worse than its profile the engine is now.

    `extra_ttft` delays each request before it may be scheduled (nanoseconds); `inter_token_factor`, at
    least 0.01, stretches decoding.
    """

    extra_ttft: Duration = NO_DELAY
    inter_token_factor: float = 1.0


class _Run:
    """`steps` steps of one plan that lie ahead, the first of which began at `start`."""

    __slots__ = ("plan", "start", "step_ns", "steps", "streamed")

    def __init__(self, plan: StepPlan, start: Instant, step_ns: int, steps: int) -> None:
        self.plan = plan
        self.start = start
        self.step_ns = step_ns
        self.steps = steps
        self.streamed = tuple(s.request.request_id for s in plan.decode if s.request.streamed)


class Engine:
    """One simulated engine. Calls must come with `now` never going back (ValueError).

    With `journal` it records what happens to its reusable blocks, and the owner must call `kv_changes`.
    `adapters_seen` is when each pair (running adapters, waiting adapters) was last the case, oldest first.
    """

    def __init__(
        self,
        profile: EngineProfile,
        now: Instant,
        *,
        tallies: Tallies | None = None,
        journal: bool = False,
    ) -> None:
        self.profile = profile
        self.tallies = tallies or Tallies()
        self.adapters_seen: dict[tuple[str, str], Instant] = {}
        self._now = now
        self._journal: list[KvChange] | None = [] if journal else None
        self._scheduler = Scheduler(profile, self._journal)
        self._asleep = False
        self._slowdown = Slowdown()
        self._sequences: dict[str, Sequence] = {}
        self._delayed: list[tuple[Instant, int, Sequence]] = []
        self._delayed_count = 0
        self._run: _Run | None = None
        self._leaving = False
        self._events: list[EngineEvent] = []

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """Requests submitted and not in the batch."""
        return len(self._sequences) - len(self._scheduler.running)

    @property
    def kv_usage(self) -> float:
        """Share of KV blocks in use, 0 to 1."""
        return self._scheduler.kv.usage

    @property
    def kv_used_blocks(self) -> int:
        """KV blocks in use."""
        return self._scheduler.kv.used_blocks

    @property
    def resident_adapters(self) -> tuple[str, ...]:
        """Adapters that hold a slot."""
        return self._scheduler.lora.resident

    @property
    def has_journal(self) -> bool:
        """Whether it records what happens to its reusable blocks."""
        return self._journal is not None

    @property
    def asleep(self) -> bool:
        """Whether the engine sleeps: what it holds stays, nothing is computed."""
        return self._asleep

    @property
    def decode_tokens_per_s(self) -> float:
        """Rate at which the step in progress produces tokens, 0 when idle."""
        run = self._run
        return len(run.plan.decode) * NS_PER_S / run.step_ns if run is not None else 0.0

    def submit(self, request: EngineRequest, now: Instant) -> None:
        """Accept a request; it joins the batch at the next step boundary that has room.

        Raises ValueError for an id in flight, an empty prompt or answer, or more tokens than
        `max_model_len`.
        """
        self._advance(now)
        if request.request_id in self._sequences:
            raise ValueError(f"request {request.request_id} is already in flight")
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError(f"request {request.request_id} needs at least one prompt and one output token")
        if request.prompt_tokens + request.output_tokens > self.profile.max_model_len:
            raise ValueError(
                f"request {request.request_id} exceeds max_model_len {self.profile.max_model_len}"
            )
        self._advance(now)
        sequence = Sequence(request, now)
        self._sequences[request.request_id] = sequence
        if self._slowdown.extra_ttft > 0:
            ready_at = Instant(now + self._slowdown.extra_ttft)
            self._delayed_count += 1
            heapq.heappush(self._delayed, (ready_at, self._delayed_count, sequence))
        else:
            self._enqueue(sequence, now)

    def abort(self, request_id: str, now: Instant) -> None:
        """Give up a request: at once when it waits, at the end of the current step when it runs.

        An id not in flight is ignored: the answer may have finished while the client was leaving.
        """
        self._advance(now)
        sequence = self._sequences.get(request_id)
        if sequence is None or sequence.aborted:
            return
        sequence.aborted = True
        if sequence in self._scheduler.running:
            self._leaving = True
            self._cut()
            if self._run is not None:
                self._run.streamed = tuple(i for i in self._run.streamed if i != request_id)
            return
        if sequence in self._scheduler.waiting:
            self._scheduler.waiting.remove(sequence)
        self._finish(sequence, now)

    def slow_down(self, slowdown: Slowdown, now: Instant) -> None:
        """Change the slowdown: decoding from the next step on, first tokens from the next submission on."""
        self._advance(now)
        self._slowdown = slowdown
        self._cut()

    def kv_changes(self) -> list[KvChange]:
        """Return what happened to reusable blocks since the last call, in order."""
        journal = self._journal
        if not journal:
            return []
        changes = list(journal)
        journal.clear()
        return changes

    def reset_prefix_cache(self, now: Instant) -> bool:
        """Forget cached blocks; False, and nothing forgotten, while a request holds some (as vLLM has it)."""
        self._advance(now)
        return self._scheduler.kv.clear()

    def sleep(self, now: Instant) -> None:
        """Compute nothing until `wake`, from the end of the step in progress; cached blocks are forgotten if idle."""
        self._advance(now)
        self._asleep = True
        self._cut()
        self._scheduler.kv.clear()

    def wake(self, now: Instant) -> None:
        """Go on where `sleep` stopped."""
        self._advance(now)
        if self._asleep:
            self._asleep = False
            if self._run is None:
                self._begin(now)

    def advance(self, now: Instant) -> list[EngineEvent]:
        """Return what happened up to and including `now`, in order of time."""
        self._advance(now)
        events, self._events = self._events, []
        return events

    def next_deadline(self) -> Instant | None:
        """Return when something next happens that `advance` would report, or None when idle."""
        deadlines = []
        if self._events:
            deadlines.append(self._now)
        if self._delayed:
            deadlines.append(self._delayed[0][0])
        if self._run is not None:
            steps = 1 if self._run.streamed else self._run.steps
            deadlines.append(Instant(self._run.start + steps * self._run.step_ns))
        return min(deadlines, default=None)

    def _advance(self, now: Instant) -> None:
        if now < self._now:
            raise ValueError(f"time went back from {self._now} to {now}")
        while self._delayed and self._delayed[0][0] <= now:
            ready_at, _, sequence = heapq.heappop(self._delayed)
            if not sequence.aborted:
                self._complete_until(ready_at)
                self._enqueue(sequence, ready_at)
        self._complete_until(now)
        self._now = now

    def _enqueue(self, sequence: Sequence, at: Instant) -> None:
        self._scheduler.waiting.append(sequence)
        if self._run is None:
            self._begin(at)
        else:
            self._cut()

    def _cut(self) -> None:
        """Plan anew at the end of the step in progress."""
        if self._run is not None:
            self._run.steps = 1

    def _complete_until(self, now: Instant) -> None:
        while self._run is not None:
            run = self._run
            done = min(run.steps, (now - run.start) // run.step_ns)
            if done <= 0:
                return
            self._complete(run, done)
            end = Instant(run.start + done * run.step_ns)
            run.start = end
            run.steps -= done
            if run.steps == 0:
                self._run = None
                self._begin(end)
            else:
                for sequence in run.plan.decode:
                    self._scheduler.grow(sequence, 1)

    def _begin(self, at: Instant) -> None:
        if self._asleep:
            return
        plan = self._scheduler.plan()
        for sequence in plan.preempted:
            self.tallies.preemptions += 1
            self._events.append(Preempted(sequence.request.request_id, at))
        for sequence in plan.admitted:
            if sequence.scheduled_at is None:
                sequence.scheduled_at = at
                sequence.cached_tokens = sequence.computed
                self.tallies.prefix_queries += sequence.request.prompt_tokens
                self.tallies.prefix_hits += sequence.cached_tokens
        if self.profile.max_loras:
            self._note_adapters(at)
        if not plan.prefill and not plan.decode:
            return
        step_ns = self.profile.step_ns(
            plan.prefill_tokens,
            len(plan.decode),
            len(self._scheduler.running),
            lora_loads=plan.lora_loads,
            inter_token_factor=self._slowdown.inter_token_factor,
        )
        self._run = _Run(plan, at, step_ns, self._scheduler.identical_steps(plan))

    def _note_adapters(self, at: Instant) -> None:
        """Remember which adapters run and wait, as vLLM labels a gauge with them in every iteration."""
        seen = self.adapters_seen
        waiting = dict.fromkeys(s.request.lora for s in self._scheduler.waiting if s.request.lora)
        pair = (",".join(self._scheduler.lora.running), ",".join(waiting))
        seen.pop(pair, None)
        seen[pair] = at
        if len(seen) > LORA_SERIES_MAX:
            del seen[next(iter(seen))]

    def _complete(self, run: _Run, done: int) -> None:
        self.tallies.steps += done
        self.tallies.busy_ns += done * run.step_ns
        end = Instant(run.start + done * run.step_ns)
        over = self._decode(run, done, end) or self._leaving
        for sequence, tokens in run.plan.prefill:
            over = self._prefill(sequence, tokens, end) or over
        if over:
            self._sweep(end)

    def _decode(self, run: _Run, done: int, end: Instant) -> bool:
        """Give each decoding sequence `done` tokens; True when one of them is over."""
        if run.streamed:
            for step in range(1, done + 1):
                self._events.append(TokensProduced(Instant(run.start + step * run.step_ns), run.streamed))
        over = False
        in_pace = 0
        produced = 0
        decoding = [sequence for sequence in run.plan.decode if not sequence.aborted]
        self._scheduler.decode_steps(decoding, done)
        for sequence in decoding:
            sequence.produced += done
            produced += done
            if sequence.last_token_at == run.start:
                in_pace += done
            else:
                # It was preempted or crowded out of a step in between: its first gap is longer.
                self.tallies.inter_token.observe(run.start + run.step_ns - sequence.last_token_at)
                in_pace += done - 1
            sequence.last_token_at = end
            over = over or sequence.produced == sequence.request.output_tokens
        self.tallies.generation_tokens += produced
        if in_pace:
            self.tallies.inter_token.observe(run.step_ns, in_pace)
        return over

    def _prefill(self, sequence: Sequence, tokens: int, end: Instant) -> bool:
        """Take in a chunk computed by the step that ended; True when the sequence is over."""
        sequence.computed += tokens
        self._scheduler.offer_blocks(sequence)
        if sequence.aborted or sequence.computed < sequence.known_tokens:
            return False
        request = sequence.request
        if sequence.first_token_at is None:
            sequence.first_token_at = end
            self.tallies.prompt_tokens += request.prompt_tokens
            self.tallies.time_to_first_token.observe(end - sequence.submitted_at)
            self._events.append(FirstToken(request.request_id, end, sequence.cached_tokens))
        else:
            self.tallies.inter_token.observe(end - sequence.last_token_at)
            if request.streamed:
                self._events.append(TokensProduced(end, (request.request_id,)))
        sequence.last_token_at = end
        sequence.produced += 1
        self.tallies.generation_tokens += 1
        return sequence.produced == request.output_tokens

    def _sweep(self, at: Instant) -> None:
        """Let go of sequences that are over, keeping the order of the others."""
        staying = []
        for sequence in self._scheduler.running:
            if sequence.aborted or sequence.produced == sequence.request.output_tokens:
                self._scheduler.release(sequence)
                self._finish(sequence, at)
            else:
                staying.append(sequence)
        self._scheduler.running = staying
        self._leaving = False

    def _finish(self, sequence: Sequence, at: Instant) -> None:
        request = sequence.request
        scheduled_at, first_token_at = sequence.scheduled_at, sequence.first_token_at
        if sequence.aborted or scheduled_at is None or first_token_at is None:
            reason = FinishReason.ABORT
        else:
            reason = FinishReason.STOP if request.natural_end else FinishReason.LENGTH
            tallies = self.tallies
            tallies.e2e.observe(at - sequence.submitted_at)
            tallies.queue.observe(scheduled_at - sequence.submitted_at)
            tallies.prefill.observe(first_token_at - scheduled_at)
            tallies.decode.observe(at - first_token_at)
            tallies.inference.observe(at - scheduled_at)
            if sequence.produced > 1:
                tallies.time_per_output_token.observe((at - first_token_at) // (sequence.produced - 1))
        self.tallies.finished[reason.value] += 1
        del self._sequences[request.request_id]
        self._events.append(
            Finished(
                request_id=request.request_id,
                at=at,
                reason=reason,
                output_tokens=sequence.produced,
                cached_tokens=sequence.cached_tokens,
                submitted_at=sequence.submitted_at,
                scheduled_at=scheduled_at,
                first_token_at=first_token_at,
            )
        )

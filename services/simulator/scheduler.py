"""Continuous batching: which sequences compute how many tokens in the next step.

Follows vLLM's V1 scheduler: running sequences first in order of admission, then waiting ones while
sequences, token budget and KV blocks last; prompts are cut to the budget (chunked prefill); when a running
sequence finds no block, the latest admitted one is preempted; one whose adapter finds no slot is passed by.
Knows the order of steps, not their time.
"""

from collections import deque
from dataclasses import dataclass, field

from services.core.units import Instant
from services.simulator.events import BlocksStored, EngineRequest, KvChange
from services.simulator.kv_cache import KvCache
from services.simulator.lora_slots import LoraSlots
from services.simulator.profile import EngineProfile
from services.simulator.tokens import BYTES_PER_TOKEN


class Sequence:
    """One request on its way through the engine: what was computed, produced and held, and when."""

    __slots__ = (
        "aborted",
        "cached_tokens",
        "computed",
        "first_token_at",
        "last_token_at",
        "offered",
        "private",
        "produced",
        "request",
        "scheduled_at",
        "shared",
        "submitted_at",
    )

    def __init__(self, request: EngineRequest, submitted_at: Instant) -> None:
        self.request = request
        self.submitted_at = submitted_at
        self.scheduled_at: Instant | None = None
        self.first_token_at: Instant | None = None
        self.last_token_at = submitted_at
        self.computed = 0
        self.produced = 0
        self.cached_tokens = 0
        self.shared: list[bytes] = []
        self.private = 0
        self.offered = 0
        self.aborted = False

    @property
    def known_tokens(self) -> int:
        """Tokens whose keys and values a step must have before it can produce the next one."""
        return self.request.prompt_tokens + self.produced


@dataclass(slots=True)
class StepPlan:
    """The work of one step. `decode` sequences compute one token each, `prefill` ones the given number."""

    prefill: list[tuple[Sequence, int]] = field(default_factory=list)
    decode: list[Sequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    prefill_tokens: int = 0
    lora_loads: int = 0

    def add(self, sequence: Sequence, tokens: int) -> None:
        """Plan `tokens` of `sequence`; one token after the first output counts as decoding."""
        if tokens == 1 and sequence.produced and sequence.known_tokens - sequence.computed == 1:
            self.decode.append(sequence)
        else:
            self.prefill.append((sequence, tokens))
            self.prefill_tokens += tokens


class Scheduler:
    """The running batch, the waiting queue, and the KV cache and adapter slots between them."""

    def __init__(self, profile: EngineProfile, journal: list[KvChange] | None = None) -> None:
        self._profile = profile
        self.kv = KvCache(profile.num_gpu_blocks, prefix_caching=profile.prefix_caching, journal=journal)
        self.lora = LoraSlots(profile.max_loras)
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()

    def plan(self) -> StepPlan:
        """Choose the next step's work and reserve its blocks; empty only when nothing runs or waits."""
        plan = StepPlan()
        budget = self._plan_running(plan, self._profile.max_num_batched_tokens)
        if not plan.preempted:
            self._plan_waiting(plan, budget)
        return plan

    def _plan_running(self, plan: StepPlan, budget: int) -> int:
        index = 0
        block_size = self._profile.block_size
        decode = plan.decode
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            missing = sequence.request.prompt_tokens + sequence.produced - sequence.computed
            if missing == 1 and sequence.produced and sequence.computed % block_size:
                # Nearly every sequence of nearly every step: it decodes, and its last block has room.
                decode.append(sequence)
                budget -= 1
                index += 1
                continue
            tokens = min(missing, budget)
            while not self.grow(sequence, tokens):
                victim = self.running.pop()
                self._preempt(victim)
                plan.preempted.append(victim)
                if victim is sequence:
                    return budget
            plan.add(sequence, tokens)
            budget -= tokens
            index += 1
        return budget

    def _plan_waiting(self, plan: StepPlan, budget: int) -> None:
        passed_by: list[Sequence] = []
        while self.waiting and budget > 0 and len(self.running) < self._profile.max_num_seqs:
            sequence = self.waiting[0]
            if not self.lora.has_room(sequence.request.lora):
                passed_by.append(self.waiting.popleft())
                continue
            hashes = sequence.request.block_hashes
            # At least one token must be computed, or there would be nothing to sample the next one from.
            reusable = (sequence.known_tokens - 1) // self._profile.block_size
            matched = self.kv.match(hashes, reusable)
            cached = matched * self._profile.block_size
            tokens = min(sequence.known_tokens - cached, budget)
            new_blocks = self._blocks(cached + tokens) - matched
            if not self.kv.admit(hashes[:matched], new_blocks):
                break
            sequence.shared = list(hashes[:matched])
            sequence.private = new_blocks
            sequence.offered = matched
            sequence.computed = cached
            self.running.append(self.waiting.popleft())
            plan.lora_loads += self.lora.acquire(sequence.request.lora)
            plan.admitted.append(sequence)
            plan.add(sequence, tokens)
            budget -= tokens
        self.waiting.extendleft(reversed(passed_by))

    def identical_steps(self, plan: StepPlan) -> int:
        """Return how many steps from this one on are sure to have this very plan.

        More than one only when every planned sequence decodes: then nothing changes until one of them
        ends or blocks may run out. What waits now stays shut out that long, since nothing is released.
        """
        if plan.prefill or plan.preempted or not plan.decode:
            return 1
        until_end = min(sequence.request.output_tokens - sequence.produced for sequence in plan.decode)
        # In k steps a sequence takes at most ceil(k / block_size) blocks; this step's are reserved already.
        each = self.kv.available_blocks // len(plan.decode)
        return min(until_end, max(1, each * self._profile.block_size))

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Reserve blocks for `tokens` more computed tokens; False, and nothing taken, when there are too few."""
        missing = self._blocks(sequence.computed + tokens) - len(sequence.shared) - sequence.private
        if missing <= 0:
            return True
        if not self.kv.take(missing):
            return False
        sequence.private += missing
        return True

    def offer_blocks(self, sequence: Sequence) -> None:
        """Make the full blocks computed so far reusable by later requests."""
        hashes = sequence.request.block_hashes
        full = min(sequence.computed // self._profile.block_size, len(hashes))
        stored: list[int] = []
        for index in range(sequence.offered, full):
            if self.kv.share(hashes[index]):
                sequence.shared.append(hashes[index])
                sequence.private -= 1
                stored.append(index)
        sequence.offered = max(sequence.offered, full)
        if stored and self.kv.journal is not None:
            self._write_stored(self.kv.journal, sequence.request, stored)

    def decode_steps(self, decoding: list[Sequence], steps: int) -> None:
        """Let each of `decoding` compute one token in each of `steps` steps.

        The first step's blocks are reserved by the plan. Blocks are taken and offered in the order in which
        one step after the other would, or what is evicted would depend on how time is cut.
        """
        size = self._profile.block_size
        if steps == 1:
            for sequence in decoding:
                sequence.computed += 1
                if sequence.computed % size == 0:
                    self.offer_blocks(sequence)
            return
        full: list[tuple[int, int]] = []  # (steps until a block is full, place in the batch)
        for place, sequence in enumerate(decoding):
            full += ((step, place) for step in range(-sequence.computed % size or size, steps + 1, size))
        full.sort()
        starts = [sequence.computed for sequence in decoding]
        at, step_filled = 0, 0
        while at < len(full):
            # Blocks that fill in one step are offered at its end; the next ones are taken as the next begins.
            step_filled = full[at][0]
            until = at
            while until < len(full) and full[until][0] == step_filled:
                place = full[until][1]
                decoding[place].computed = starts[place] + step_filled
                self.offer_blocks(decoding[place])
                until += 1
            for _, place in full[at:until] if step_filled < steps else ():
                self.grow(decoding[place], 1)
            at = until
        for place, sequence in enumerate(decoding):
            sequence.computed = starts[place] + steps

    def _write_stored(self, journal: list[KvChange], request: EngineRequest, stored: list[int]) -> None:
        """Tell of the blocks at the indexes `stored`, each consecutive run by itself."""
        block_bytes = self._profile.block_size * BYTES_PER_TOKEN
        start = 0
        for end in range(1, len(stored) + 1):
            if end < len(stored) and stored[end] == stored[end - 1] + 1:
                continue
            first, last = stored[start], stored[end - 1] + 1
            journal.append(
                BlocksStored(
                    hashes=request.block_hashes[first:last],
                    parent=request.block_hashes[first - 1] if first else None,
                    first=first,
                    content=request.content[first * block_bytes : last * block_bytes],
                    lora=request.lora,
                    cache_salt=request.cache_salt,
                )
            )
            start = end

    def release(self, sequence: Sequence) -> None:
        """Give back all blocks, and the adapter's slot, of a sequence that leaves the batch."""
        self.lora.release(sequence.request.lora)
        self.kv.release(sequence.shared, sequence.private)
        sequence.shared = []
        sequence.private = 0
        sequence.offered = 0
        sequence.computed = 0

    def _preempt(self, sequence: Sequence) -> None:
        self.release(sequence)
        self.waiting.appendleft(sequence)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._profile.block_size)

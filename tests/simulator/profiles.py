"""A small engine whose limits a handful of requests can reach, and ways to run one to its end."""

from services.simulator.engine import Engine
from services.simulator.events import EngineEvent, Finished
from services.simulator.profile import EngineProfile

TINY = EngineProfile(
    name="tiny",
    max_num_seqs=4,
    max_num_batched_tokens=64,
    max_model_len=256,
    num_gpu_blocks=24,
    step_base_us=1_000,
    prefill_token_us=10,
    decode_sequence_us=100,
    block_size=16,
)


def drain(engine: Engine) -> list[EngineEvent]:
    """Advance from deadline to deadline until the engine is idle."""
    events: list[EngineEvent] = []
    while (deadline := engine.next_deadline()) is not None:
        events += engine.advance(deadline)
    return events


def finished(events: list[EngineEvent]) -> dict[str, Finished]:
    return {event.request_id: event for event in events if isinstance(event, Finished)}

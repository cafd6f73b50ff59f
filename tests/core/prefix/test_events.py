from services.core.prefix.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, EventSource


def test_events_say_only_what_the_engine_said() -> None:
    stored = BlockStored((1,), None, b"\1\0\0\0", 1)
    assert (stored.medium, stored.adapter, stored.extras, stored.full_attention) == ("gpu", None, (), True)
    assert BlockRemoved((b"x",)).medium == "gpu"
    assert EventBatch((stored, AllBlocksCleared())).rank == 0
    assert EventSource("a", "llama") == EventSource("a", "llama", 0) != EventSource("a", "llama", 1)

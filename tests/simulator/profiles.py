"""Small engines whose limits a handful of requests can reach."""

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

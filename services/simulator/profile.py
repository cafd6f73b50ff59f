"""Engine profiles: the sizes and costs that make one simulated GPU differ from another.

Values only; the engine that spends them is in `engine`. Presets are illustrative: they follow from
published memory bandwidth, arithmetic throughput and cache bytes per token of an 8-billion-parameter
model in 16-bit weights, and were not measured on the hardware they are named after.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

NS_PER_US = 1_000


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """What one engine has and what its work costs.

    `max_num_seqs`, `max_num_batched_tokens`, `max_model_len`, `num_gpu_blocks` and `block_size` mean what
    they mean to vLLM. A step costs `step_base_us` (reading the weights, launching kernels) plus
    `prefill_token_us` per prompt token plus `decode_sequence_us` per decoding sequence, and the whole
    stretches linearly up to `time_factor_under_load` as the batch fills. `max_loras` adapters fit beside the
    base model, 0 meaning that none are served; a step that brings one into a slot takes `lora_load_us` longer
    for everybody, as it does in vLLM. Raises ValueError when a size would make a request impossible to finish.
    """

    name: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_gpu_blocks: int
    step_base_us: int
    prefill_token_us: int
    decode_sequence_us: int
    block_size: int = 16
    prefix_caching: bool = True
    time_factor_under_load: float = 1.0
    max_loras: int = 0
    lora_load_us: int = 20_000

    def __post_init__(self) -> None:
        for field in ("max_num_seqs", "max_model_len", "num_gpu_blocks", "step_base_us", "block_size"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, not {getattr(self, field)}")
        for field in ("prefill_token_us", "decode_sequence_us", "max_loras", "lora_load_us"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must not be negative, but is {getattr(self, field)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}), or some sequence could never decode"
            )
        if self.max_model_len > self.num_gpu_blocks * self.block_size:
            raise ValueError(
                f"max_model_len ({self.max_model_len}) exceeds the KV cache of {self.num_gpu_blocks} blocks "
                f"of {self.block_size} tokens, so one long request could never finish"
            )
        if not 1.0 <= self.time_factor_under_load <= 100.0:
            raise ValueError(f"time_factor_under_load must be 1 to 100, not {self.time_factor_under_load}")

    def step_ns(
        self,
        prefill_tokens: int,
        decoding: int,
        running: int,
        *,
        lora_loads: int = 0,
        inter_token_factor: float = 1.0,
    ) -> int:
        """Return the nanoseconds of one step.

        `inter_token_factor` stretches everything but prefill work and loads, as a throttled GPU would.
        """
        decode_us = (self.step_base_us + decoding * self.decode_sequence_us) * inter_token_factor
        total_us = decode_us + prefill_tokens * self.prefill_token_us
        if self.time_factor_under_load > 1.0 and self.max_num_seqs > 1:
            share = (running - 1) / (self.max_num_seqs - 1)
            total_us *= 1.0 + (self.time_factor_under_load - 1.0) * share
        return max(1, round((total_us + lora_loads * self.lora_load_us) * NS_PER_US))


# Weights 16 GB over 3.35 TB/s is 4.8 ms a step; 16 GFLOP a prompt token at half of 990 TFLOP/s is 32 us;
# about 50 GB left for keys and values at 128 KiB a token is some 24,000 blocks of 16 tokens.
H100_8B = EngineProfile(
    name="h100-8b",
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    max_model_len=131_072,
    num_gpu_blocks=24_000,
    step_base_us=6_500,
    prefill_token_us=32,
    decode_sequence_us=50,
)

# Weights 16 GB over 600 GB/s is 27 ms a step; 125 TFLOP/s halved gives 256 us a prompt token; about
# 4 GB left for keys and values is some 2,000 blocks.
A10_8B = EngineProfile(
    name="a10-8b",
    max_num_seqs=128,
    max_num_batched_tokens=2048,
    max_model_len=16_384,
    num_gpu_blocks=2_000,
    step_base_us=29_000,
    prefill_token_us=256,
    decode_sequence_us=200,
)

PROFILES: Mapping[str, EngineProfile] = MappingProxyType({p.name: p for p in (H100_8B, A10_8B)})

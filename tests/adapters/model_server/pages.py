"""A metrics page of the size and shape that a vLLM V1 server publishes, written from a few numbers."""

from collections.abc import Sequence

BOUNDS = (
    *("0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "0.75", "1.0"),
    *("2.5", "5.0", "7.5", "10.0", "20.0", "40.0", "80.0", "160.0", "640.0", "2560.0", "+Inf"),
)
OTHER_HISTOGRAMS = (
    "iteration_tokens_total",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_params_max_tokens",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
)


def vllm_page(
    waiting: Sequence[int] = (3,),
    running: Sequence[int] = (7,),
    kv_use: Sequence[float] = (0.25,),
    model: str = "meta-llama/Llama-3.1-8B-Instruct",
) -> bytes:
    """Return a page with one value per data-parallel rank and over 1,500 lines."""
    lines: list[str] = []

    def gauge(name: str, values: Sequence[float]) -> None:
        lines.extend((f"# HELP vllm:{name} About vllm:{name}.", f"# TYPE vllm:{name} gauge"))
        lines.extend(
            f'vllm:{name}{{engine="{rank}",model_name="{model}"}} {float(value)}'
            for rank, value in enumerate(values)
        )

    def histogram(name: str) -> None:
        lines.extend((f"# HELP vllm:{name} About vllm:{name}.", f"# TYPE vllm:{name} histogram"))
        lines.extend(
            f'vllm:{name}_bucket{{engine="0",le="{bound}",model_name="{model}"}} {float(at * 3)}'
            for at, bound in enumerate(BOUNDS)
        )
        lines.append(f'vllm:{name}_count{{engine="0",model_name="{model}"}} 66.0')
        lines.append(f'vllm:{name}_sum{{engine="0",model_name="{model}"}} 91.5')

    gauge("num_requests_running", running)
    gauge("num_requests_waiting", waiting)
    gauge("kv_cache_usage_perc", kv_use)
    for name in OTHER_HISTOGRAMS:
        histogram(name)
    histogram("time_to_first_token_seconds")
    lines.append('vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="27000"} 1.0')
    lines.extend(
        f'http_request_duration_seconds_bucket{{handler="/v1/chat/completions",le="{at / 10}"}} {at}.0'
        for at in range(1_520 - len(lines))
    )
    return ("\n".join(lines) + "\n").encode()

"""Asking a running picker as a plain client does, and reading which pod served; for scenarios of one cluster.

The picker accepts direct requests, so that the gateway's control headers are believed.
"""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx

from tests.endpoint_picker.cluster import MODEL, Cluster, cluster_of

QUICK = {"step_base_us": 1_000, "prefill_token_us": 1, "decode_sequence_us": 10}
DIRECT = {"port": 0, "accept": "direct"}
HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def direct_cluster(pods: int, **changes: Any) -> AbstractAsyncContextManager[Cluster]:
    """A cluster whose gateway takes requests from anybody; see `cluster_of`."""
    settings: dict[str, Any] = {"http": DIRECT, "pod": {"engine": QUICK}}
    return cluster_of(pods, **(settings | changes))


def config_file(folder: Path, text: str) -> dict[str, str]:
    """The setting `scheduling` that names an `EndpointPickerConfig` of this text."""
    file = folder / "epp.yaml"
    file.write_text(HEAD + text)
    return {"config": str(file)}


async def ask(
    client: httpx.AsyncClient,
    prompt: str | list[int],
    model: str = MODEL,
    *,
    max_tokens: int = 1,
    **headers: str,
) -> httpx.Response:
    """One completion, of exactly `max_tokens`; `headers` have underscores for dashes."""
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post("/v1/completions", json=body, headers=named)


async def pod_for(client: httpx.AsyncClient, prompt: str | list[int], **headers: Any) -> str:
    """The pod that served the prompt."""
    answer = await ask(client, prompt, **headers)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-gir-endpoint"])


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and reason of a refusal."""
    return answer.status_code, answer.headers["x-gir-drop-reason"]

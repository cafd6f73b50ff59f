"""Signals: what is known of one request besides the request itself, as scorers of tier 1 use it.

Values found on the way to the pick: what the prefix index holds, the adapter and session asked for, the
tokens and the latency wanted. How they are found is not here. Apart from `InferenceRequest`, which both tiers
share and which never depends on a pod.
"""

from collections.abc import Mapping
from dataclasses import field

from services.core.values import value


@value
class Signals:
    """One request's signals; what is not known keeps its default and influences nothing.

    `matched`: leading blocks of the prompt that a candidate's cache holds, by candidate id (0 where absent),
    out of `total_blocks` of `block_tokens` tokens each. `adapter`: the LoRA adapter asked for, None for a base
    model. `session`: the candidate id that the session is bound to. `headers`: values of the headers that the
    profile's scorers and filters name (`SchedulingProfile.headers`), by lower-case name.
    """

    matched: Mapping[str, int] = field(default_factory=dict)
    total_blocks: int = 0
    block_tokens: int = 0
    adapter: str | None = None
    session: str | None = None
    prompt_tokens: int | None = None
    ttft_slo_ms: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


NO_SIGNALS = Signals()

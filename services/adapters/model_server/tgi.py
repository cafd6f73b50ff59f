"""Text Generation Inference: the names it gives its metrics, and what it does not publish.

It has no gauge of KV use, no histogram of the time to the first token and no version below which names differ;
its token totals are the sums of histograms over requests. Source: huggingface.co/docs/text-generation-inference,
"Metrics".
"""

from services.adapters.model_server.exposition import Selection
from services.adapters.model_server.series import collect, counted, missing, total
from services.core.pods.reading import EngineIdentity, EngineReading, TokenTotals

ENGINE = "tgi"

WAITING = "tgi_queue_size"
RUNNING = "tgi_batch_current_size"
PROMPT_TOKENS = "tgi_request_input_length_sum"
GENERATION_TOKENS = "tgi_request_generated_tokens_sum"


class TgiReader:
    """Reads pages of Text Generation Inference. One reader serves every pod."""

    def __init__(self) -> None:
        self._load = Selection("tgi_", (WAITING, RUNNING))
        self._all = Selection("tgi_", (WAITING, RUNNING, PROMPT_TOKENS, GENERATION_TOKENS))

    def read(self, page: bytes, *, with_ttft: bool = True) -> EngineReading:
        """Return what `page` says; without `with_ttft` the totals are left unread (None)."""
        found = collect(self._all if with_ttft else self._load, page).get
        waiting, running = total(found(WAITING, ())), total(found(RUNNING, ()))
        return EngineReading(
            engine=ENGINE,
            waiting=waiting,
            running=running,
            totals=TokenTotals(counted(found(PROMPT_TOKENS, ())), counted(found(GENERATION_TOKENS, ())))
            if with_ttft
            else None,
            missing=missing(((WAITING, waiting), (RUNNING, running))),
        )


def identify(version: str) -> EngineIdentity:
    """Return the identity; every version is served."""
    return EngineIdentity(ENGINE, version)

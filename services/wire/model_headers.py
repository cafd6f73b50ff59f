"""Model names in headers: what a gateway routes by, and the rewrite that a trusted sender may ask for.

The names of the body-based router (`X-Gateway-Model-Name`, `X-Gateway-Base-Model-Name`) and of the
endpoint pickers (`x-llm-d-model-name-rewrite` and its elder). Whether a sender is trusted is the
entry's to know; a name that is none is refused, because it would break a header or pass for another.
"""

from collections.abc import Callable
from typing import Final

from services.core.models.names import is_model_name
from services.core.models.routing import ResolvedModel
from services.wire.control_headers import BadHeaderError

MODEL_NAME: Final = b"x-gateway-model-name"
BASE_MODEL_NAME: Final = b"x-gateway-base-model-name"
REWRITE: Final = b"x-llm-d-model-name-rewrite"
REWRITE_ELDER: Final = b"x-gateway-model-name-rewrite"


def model_headers(resolved: ResolvedModel) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that go upstream with a request: the model the server is asked for, and its base."""
    return (
        (MODEL_NAME, resolved.target_model.encode()),
        (BASE_MODEL_NAME, resolved.base_model.encode()),
    )


def read_rewrite(header: Callable[[bytes], bytes | None]) -> str | None:
    """Return the target that the headers name, None without one; raises `BadHeaderError` for what is no name.

    `header` looks up lower-case names of a sender that is trusted; the elder name counts where the newer is absent.
    """
    for name in (REWRITE, REWRITE_ELDER):
        raw = header(name)
        if raw is not None:
            text = raw.decode("utf-8", "replace")
            if "\ufffd" in text or not is_model_name(text):
                raise BadHeaderError(name, "must be a model name: printable characters without spaces")
            return text
    return None

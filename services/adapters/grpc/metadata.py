"""What doors read from call metadata: the bearer token and the hop headers.

A key that may decide who is asking is taken only when it is given once: two values mean that
somebody on the way added one, and picking either would be a guess.
"""

from collections.abc import Iterable

from services.wire.hand_off import HEADER as HAND_OFF

AUTHORIZATION = "authorization"
DROP_REASON = "x-gir-drop-reason"
REQUEST_ID = "x-gir-request-id"
RETRY_AFTER_MS = "retry-after-ms"

Metadata = Iterable[tuple[str, str | bytes]]


class AmbiguousMetadataError(ValueError):
    """A key that must be given at most once was given several times."""

    def __init__(self, key: str) -> None:
        super().__init__(f"metadata {key} is given more than once")
        self.key = key


def single(metadata: Metadata | None, key: str) -> str | None:
    """Return the value of `key`, None when absent; raise `AmbiguousMetadataError` for several."""
    found: str | None = None
    for name, value in metadata or ():
        if name == key:
            if found is not None:
                raise AmbiguousMetadataError(key)
            found = value.decode("latin-1") if isinstance(value, bytes) else value
    return found


def authorization(metadata: Metadata | None) -> bytes | None:
    """Return the Authorization value (scheme and token) as an authenticator reads it."""
    value = single(metadata, AUTHORIZATION)
    return None if value is None else value.encode("latin-1", errors="replace")


def hand_off(metadata: Metadata | None) -> str | None:
    """Return the hand-off token of the hop between the tiers."""
    return single(metadata, HAND_OFF)

"""Errors of the wire: bytes that mean nothing, and values too large to send.

Both name what was read or written and why it was refused, so that a dead-letter record or a
door can repeat the sentence. How they are answered (skip, count, INVALID_ARGUMENT) is decided
by the caller.
"""


class UndecodableError(ValueError):
    """Bytes or a message that are not a valid `what`; `why` is a clause that names the field and the rule."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why


class OversizeError(ValueError):
    """A value whose message exceeds its bound even after everything that may be cut was cut."""

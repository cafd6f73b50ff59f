"""The two ways in which a part of the stack can be missing, as exceptions.

Apart from the servers so that callers can tell "this machine lacks it" (a test skips, saying why) from
"it is here and did not work" (a test fails) without importing any one server.
"""


class PartMissingError(Exception):
    """The machine lacks what the part needs; the message is one sentence that says what."""


class PartFailedError(Exception):
    """The part is installed and did not do as told in time; the message carries the end of its log."""

"""What a model name is, everywhere: the string that is authorised is the string that is forwarded.

Names are compared byte for byte and never folded, trimmed or repaired: a gate that compares a
repaired name while the raw one goes on lets one model through for another. What could be
mistaken for another name, or would break a header, is refused instead.
"""

from typing import Final

MAX_MODEL_NAME_CHARS: Final = 256
"""Model names become labels, keys, headers and signed fields; no real one is longer."""


def is_model_name(text: str) -> bool:
    """Whether `text` can be a model's name as it is: 1 to 256 printable characters, none of them a space."""
    return 0 < len(text) <= MAX_MODEL_NAME_CHARS and text.isprintable() and " " not in text

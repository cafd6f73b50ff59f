"""Slots: each pod a bit, so that a set of pods is one integer and the pods that share a prefix are an AND.

Only the numbering lives here. Apart because both indexes number pods, and because a bit may be given to
another pod only when nothing of the former one is left.
"""

from collections.abc import Iterator


class Slots:
    """Names with a bit each. Bits are small: a freed one is given out again before a new one is."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._bits: dict[str, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._bits)

    def __contains__(self, name: str) -> bool:
        return name in self._bits

    def bit(self, name: str) -> int:
        """Return the bit of a name that has one; 0 otherwise."""
        return self._bits.get(name, 0)

    def take(self, name: str) -> int:
        """Return the bit of `name`, a new one if it has none."""
        bit = self._bits.get(name)
        if bit is None:
            if self._free:
                place = self._free.pop()
                self._names[place] = name
            else:
                place = len(self._names)
                self._names.append(name)
            bit = self._bits[name] = 1 << place
        return bit

    def retire(self, name: str) -> int:
        """Take a name's bit away without giving it to others yet; return it, 0 if it had none."""
        return self._bits.pop(name, 0)

    def release(self, bit: int) -> None:
        """A retired bit is used nowhere any more."""
        self._free.append(bit.bit_length() - 1)

    def names(self, mask: int) -> Iterator[str]:
        """Yield the names whose bits are in `mask`, lowest first."""
        names = self._names
        while mask:
            low = mask & -mask
            yield names[low.bit_length() - 1]
            mask ^= low

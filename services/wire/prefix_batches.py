"""What pickers of one cluster tell each other: which pod was sent which blocks, sealed with the deployment's secret.

A batch is AES-GCM over msgpack `[sender, [[pod, hashes], ...]]`; hashes are 8 bytes each, of a chain whose root is
keyed. Whoever carries the batches can neither read nor forge nor extend one. Nonces come in as arguments.
"""

import array
import hashlib
import sys
from collections.abc import Sequence
from typing import Final

import msgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from services.core.values import value

NONCE_BYTES: Final = 12
MAX_BATCH_BYTES: Final = 1 << 20
MAX_BLOCKS: Final = 65_536
"""Blocks of one batch; a sender ends its batches far earlier."""
_VERSION: Final = b"\x01"
_PERSON: Final = b"gir-prefix-feed"
_HASH_BYTES: Final = 8


class PrefixBatchError(ValueError):
    """The batch was sealed with another secret, or is none."""


@value
class Placement:
    """`pod` was sent a prompt with these blocks, the first of the prompt first."""

    pod: str
    blocks: tuple[int, ...]


@value
class PrefixBatch:
    """Placements in the order they were made; `sender` is the process that made them."""

    sender: str
    placements: tuple[Placement, ...]


class PrefixSeal:
    """Seals and opens batches. `secret` is the deployment's, of 16 to 64 bytes."""

    def __init__(self, secret: bytes) -> None:
        # The secret keys the chains too; a key of its own keeps the two uses apart.
        self._cipher = AESGCM(hashlib.blake2b(b"", key=secret, person=_PERSON, digest_size=32).digest())

    def seal(self, sender: str, placements: Sequence[Placement], nonce: bytes) -> bytes:
        """Return a batch; `nonce` is 12 bytes, never used before with this secret."""
        plain = msgpack.packb(
            [sender, [[placement.pod, _packed(placement.blocks)] for placement in placements]]
        )
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, _VERSION)

    def open(self, batch: bytes) -> PrefixBatch:
        """Return what a batch says. Raises `PrefixBatchError`."""
        if len(batch) > MAX_BATCH_BYTES or batch[:1] != _VERSION:
            raise PrefixBatchError("no batch of this version")
        nonce, sealed = batch[1 : 1 + NONCE_BYTES], batch[1 + NONCE_BYTES :]
        try:
            sender, placements = msgpack.unpackb(self._cipher.decrypt(nonce, sealed, _VERSION))
            return PrefixBatch(
                str(sender), tuple(Placement(str(pod), _unpacked(hashes)) for pod, hashes in placements)
            )
        except (InvalidTag, ValueError, TypeError, msgpack.UnpackException) as error:
            raise PrefixBatchError(f"cannot be opened: {type(error).__name__}") from None


def _packed(blocks: Sequence[int]) -> bytes:
    packed = array.array("Q", blocks)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpacked(data: bytes) -> tuple[int, ...]:
    if len(data) > MAX_BLOCKS * _HASH_BYTES:
        raise ValueError("too many blocks")
    blocks = array.array("Q")
    blocks.frombytes(data)
    if sys.byteorder == "big":
        blocks.byteswap()
    return tuple(blocks)

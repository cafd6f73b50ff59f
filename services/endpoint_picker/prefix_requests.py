"""The prefix step of a request: short prompts are answered at once, long ones a slice at a time.

Token ids for the precise index come from the prompt itself or from a server's tokenizer within a small budget; without
them the approximate index answers. What is found is `prefix`'s; who is picked is nobody's here.
"""

import array
import logging
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

import orjson
from xxhash import xxh3_128_digest

from services.adapters.metric_names import prefix as names
from services.adapters.prefix_ports import Tokenizer
from services.adapters.system.tasks import TaskScope
from services.adapters.telemetry.prometheus import Value
from services.core.prefix.blocks import MAX_PREFIX_TOKENS, Prompt, Sliced
from services.core.units import Duration, ms
from services.endpoint_picker.prefix import Found, PrefixIndexes, in_slices
from services.wire.openai.tokenize import tokenize_request

_LOG = logging.getLogger(__name__)

AT_ONCE_BYTES = 64 * 1024
"""Prompts up to this size are looked up in one go: 0.1 ms."""
IDS_SLICE_BYTES = 24 * 1024
"""Decimal ids read at once: 4,000 of them, 0.2 ms."""
TOKENIZE_BUDGET = ms(20)
"""What a request may wait for token ids: less than the prefill that a better pick saves."""
TOKENIZE_MAX_BYTES = 64 * 1024
"""Larger bodies are not sent to a tokenizer: reading its answer alone would take a millisecond of the loop."""
KEPT_IDS_BYTES = 32 << 20
"""Token ids of prompts seen before, least recently used ones forgotten."""
QUESTIONS_AT_ONCE = 32


class PrefixRequests:
    """The life cycle's prefix index. `address_of` names a server of a pool to ask for token ids, None: ask nobody.

    `tasks` owns the lookups that wait.
    """

    def __init__(
        self,
        indexes: PrefixIndexes,
        tasks: TaskScope,
        tokenizer: Tokenizer | None = None,
        address_of: Callable[[str], str | None] | None = None,
        budget: Duration = TOKENIZE_BUDGET,
    ) -> None:
        self._indexes = indexes
        self._tasks = tasks
        self._tokenizer = tokenizer
        self._address_of = address_of
        self._budget = budget
        self._asking = 0
        self._ids: OrderedDict[bytes, bytes] = OrderedDict()
        self._ids_bytes = 0
        self.tokenizations: Counter[str] = Counter()

    def match(self, pool: str, model: str, prompt: Prompt, found: Callable[[Found], None]) -> None:
        """Look a prompt up and call `found` once: at once where that takes a fraction of a millisecond."""
        precise = self._indexes.precise is not None
        if len(prompt.data) <= AT_ONCE_BYTES and not (precise and self._asks(prompt)):
            ids = _packed(prompt.data) if precise and prompt.token_ids else None
            found(self._indexes.signals(pool, model, prompt, ids))
            return
        self._tasks.spawn(self._match(pool, model, prompt, found), "prefix lookup")

    def sent(self, pod: str, matched: object) -> None:
        """The prompt went to `pod`. `matched` is what `found` was called with."""
        if isinstance(matched, Found):
            self._indexes.sent(pod, matched)

    def values(self) -> Iterable[Value]:
        """Return counts as metrics."""
        for result, count in sorted(self.tokenizations.items()):
            yield Value(names.PICKER_TOKENIZATIONS, count, (result,))

    def _asks(self, prompt: Prompt) -> bool:
        return (
            self._tokenizer is not None
            and not prompt.token_ids
            and 0 < len(prompt.source) <= TOKENIZE_MAX_BYTES
        )

    async def _match(self, pool: str, model: str, prompt: Prompt, found: Callable[[Found], None]) -> None:
        try:
            looked_up = await self._look(pool, model, prompt)
        except Exception:  # noqa: BLE001 -- whatever is wrong with a look-up, its request is still to be served
            _LOG.exception("pool %s: a prefix look-up failed", pool)
            looked_up = Found({}, 0, 0)
        found(looked_up)

    async def _look(self, pool: str, model: str, prompt: Prompt) -> Found:
        ids: bytes | None = None
        if self._indexes.precise is not None:
            if prompt.token_ids:
                ids = await in_slices(_ids(prompt))
            elif self._asks(prompt):
                ids = await self._tokenized(pool, model, prompt)
        return await in_slices(self._indexes.look(pool, model, prompt, ids))

    async def _tokenized(self, pool: str, model: str, prompt: Prompt) -> bytes | None:
        key = xxh3_128_digest(b"%b\0%b" % (model.encode("utf-8", "surrogatepass"), prompt.data))
        known = self._ids.get(key)
        if known is not None:
            self._ids.move_to_end(key)
            self.tokenizations["kept"] += 1
            return known
        ids = await self._ask(pool, model, prompt)
        self.tokenizations["absent" if ids is None else "asked"] += 1
        if ids is not None and key not in self._ids:
            self._ids[key] = ids
            self._ids_bytes += len(ids)
            while self._ids_bytes > KEPT_IDS_BYTES:
                _, oldest = self._ids.popitem(last=False)
                self._ids_bytes -= len(oldest)
        return ids

    async def _ask(self, pool: str, model: str, prompt: Prompt) -> bytes | None:
        address = self._address_of(pool) if self._address_of is not None else None
        body = tokenize_request(prompt.source, model) if address is not None else None
        if self._tokenizer is None or address is None or body is None or self._asking >= QUESTIONS_AT_ONCE:
            return None
        self._asking += 1
        try:
            return await self._tokenizer.tokenize(address, body, self._budget)
        finally:
            self._asking -= 1


def _ids(prompt: Prompt) -> Sliced[bytes | None]:
    """Read decimal ids, in slices, into 4 bytes each; None when they are none."""
    packed: list[bytes] = []
    data, at, read = prompt.data, 0, 0
    while at < len(data) and read < 4 * MAX_PREFIX_TOKENS:
        end = data.find(b",", at + IDS_SLICE_BYTES)
        end = len(data) if end < 0 else end
        ids = _packed(data[at:end])
        if ids is None:
            return None
        packed.append(ids)
        read += len(ids)
        at = end + 1
        yield
    return b"".join(packed)


def _packed(digits: bytes) -> bytes | None:
    """Return decimal ids as 4 bytes each, little-endian; None when one is no unsigned 32-bit number."""
    try:
        ids = array.array("I", orjson.loads(b"[%b]" % digits))
    except (ValueError, TypeError, OverflowError):
        return None
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()

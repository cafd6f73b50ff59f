"""The prompt of a request body as bytes to be hashed: equal bytes mean equal content, in every form OpenAI has.

Chat templates are left out: they turn equal messages into equal prompts. Whatever an engine would read counts,
images and tools included; long parts that are no text stand there as digests. Nothing here can fail on a body
that was read, whatever it holds. Cutting into blocks and matching is `core/prefix`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import xxhash

from services.core.prefix.blocks import Prompt
from services.core.units import Tokens
from services.wire.openai.requests import ReadBody, read_document

TEXT_BYTES_PER_TOKEN = 4
"""UTF-8 bytes of one token of English text; the unit in which blocks of text are cut."""
IDS_BYTES_PER_TOKEN = 6
"""Decimal digits and comma of one token id of a vocabulary near 100,000; the unit for prompts of token ids."""

# Bytes that UTF-8 never contains, so that no text can imitate the structure.
_MESSAGE = b"\xf8"
_CONTENT = b"\xf9"
_DIGEST = b"\xfa"
_NEXT = b"\xfb"

_TEXT_TYPES = frozenset(("text", "input_text", "output_text", "refusal"))
_MESSAGE_TEXT_KEYS = frozenset(("role", "content"))
_CONTEXT_KEYS = (
    "tools",
    "functions",
    "documents",
    "instructions",
    "previous_response_id",
    "prompt_cache_key",
)
"""Fields beside the messages that templates put in front of them, or that bring text from elsewhere."""
_ID_BYTES = b"0123456789,"
_SPACE = b" \t\r\n"
_IDS_START = re.compile(rb'"(?:prompt|input)"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*(?=[0-9])')
_PROMPT_KEYS = (b'"prompt"', b'"input"')
_MESSAGES_KEY = b'"messages"'
_HEAD_BYTES = 4096
"""Where messages are looked for first: a long chat is then known as one without a search through its text."""
_LARGE_BODY_BYTES = 64 * 1024
"""Below it building a list of ids costs less than looking for it."""


class _UnreadableError(Exception):
    """Content that cannot be given a spelling; the prompt ends before it."""


def read_prompt(body: bytes) -> tuple[ReadBody, Prompt]:
    """Return what routing needs from a body and its prompt, from one parse. Raises `BadBodyError` as `read_body`.

    A large body of token ids is not parsed into integers: its digits are the prompt, and the rest is read
    without them.
    """
    found = _ids_in(body) if len(body) > _LARGE_BODY_BYTES else None
    if found is None:
        read, fields = read_document(body)
        return read, prompt_of(fields, body)
    start, end, ids = found
    read, fields = read_document(b"".join((body[:start], body[end:])))
    tokens = Tokens(ids.count(b",") + 1)
    return replace(read, prompt_tokens=tokens), Prompt(ids, IDS_BYTES_PER_TOKEN, True, _salt_of(fields))


def prompt_of(fields: Mapping[str, Any], source: bytes = b"") -> Prompt:
    """Return the prompt of a parsed body: chat.completions, completions, responses or embeddings, by its fields.

    `source` is the body itself, where a server may be asked to tokenize it.
    """
    salt = _salt_of(fields)
    for name in ("prompt", "input"):
        ids = fields.get(name)
        if ids.__class__ is list and ids and ids[0].__class__ is int and "messages" not in fields:
            digits = _digits(ids)
            if digits is not None:
                return Prompt(digits, IDS_BYTES_PER_TOKEN, True, salt)
    parts: list[bytes] = []
    try:
        _read_context(fields, parts)
        messages = fields.get("messages")
        if messages.__class__ is list:
            _read_messages(messages, parts)
        for name in ("prompt", "input"):
            _read_input(fields.get(name), parts)
    except _UnreadableError:
        pass
    return Prompt(b"".join(parts), TEXT_BYTES_PER_TOKEN, False, salt, source)


def token_ids(prompt: Prompt) -> list[int]:
    """Return the ids of a prompt of token ids; empty for any other."""
    if not prompt.token_ids:
        return []
    ids: list[int] = orjson.loads(b"[%b]" % prompt.data)
    return ids


def _read_context(fields: Mapping[str, Any], parts: list[bytes]) -> None:
    for name in _CONTEXT_KEYS:
        value = fields.get(name)
        if value is None or (value.__class__ is str and not value):
            continue
        parts.append(_NEXT + name.encode() + _CONTENT)
        parts.append(_text(value) if value.__class__ is str else _dumped(value))


def _read_messages(messages: Iterable[Any], parts: list[bytes]) -> None:
    keep = parts.append
    for message in messages:
        keep(_MESSAGE)
        if message.__class__ is not dict:
            keep(_dumped(message))
            continue
        role = message.get("role")
        keep(_text(role) if role.__class__ is str else _dumped(role))
        keep(_CONTENT)
        _read_content(message.get("content"), parts)
        # What else a message holds (a tool call, its answer's id, a name) is part of what the template renders.
        for key in sorted(message.keys() - _MESSAGE_TEXT_KEYS):
            value = message[key]
            if value is not None and value != []:
                keep(
                    _NEXT
                    + _text(key)
                    + _CONTENT
                    + (_text(value) if value.__class__ is str else _dumped(value))
                )


def _read_content(content: Any, parts: list[bytes]) -> None:
    if content is None:
        return
    if content.__class__ is str:
        parts.append(_text(content))
        return
    if content.__class__ is not list:
        parts.append(_dumped(content))
        return
    for part in content:
        if part.__class__ is str:
            parts.append(_text(part))
        elif part.__class__ is not dict:
            parts.append(_dumped(part))
        else:
            kind, text = part.get("type"), part.get("text")
            if kind.__class__ is str and kind in _TEXT_TYPES and text.__class__ is str:
                parts.append(_text(text))
            else:
                parts.append(_DIGEST + _digest(part))


def _read_input(given: Any, parts: list[bytes]) -> None:
    """Read `prompt` or `input`: a text, several, lists of ids, or the items of a response."""
    if given is None:
        return
    if given.__class__ is str:
        parts.append(_CONTENT + _text(given))
        return
    for item in given if given.__class__ is list else (given,):
        if item.__class__ is dict and ("content" in item or "role" in item):
            _read_messages((item,), parts)
        elif item.__class__ is str:
            parts.append(_CONTENT + _text(item) + _NEXT)
        else:
            digits = _digits(item) if item.__class__ is list else None
            parts.append(_NEXT + (_dumped(item) if digits is None else digits))


def _digits(ids: list[Any]) -> bytes | None:
    """Return ids as decimal digits with commas between, or None when something else is among them."""
    digits = _dumped(ids)[1:-1]
    return digits if not digits.translate(None, _ID_BYTES) else None


def _text(text: str) -> bytes:
    """Return the text's bytes; halves of surrogate pairs keep their three-byte form."""
    return text.encode("utf-8", "surrogatepass")


def _dumped(value: Any) -> bytes:
    """Return one spelling of any JSON value, keys sorted."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        pass
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    except RecursionError:
        raise _UnreadableError from None


def _digest(part: Mapping[str, Any]) -> bytes:
    """Return 16 bytes that stand for an image, audio or file; long texts in it are read where they are."""
    state = xxhash.xxh3_128()
    for key in sorted(part):
        value = part[key]
        state.update(_text(key) + _CONTENT)
        for inner in sorted(value) if value.__class__ is dict else (None,):
            leaf = value if inner is None else value[inner]
            if inner is not None:
                state.update(_NEXT + _text(inner) + _CONTENT)
            state.update(_text(leaf) if leaf.__class__ is str else _dumped(leaf))
    return state.digest()


def _salt_of(fields: Mapping[str, Any]) -> str:
    salt = fields.get("cache_salt")
    return salt if isinstance(salt, str) else ""


def _ids_in(body: bytes) -> tuple[int, int, bytes] | None:
    """Find the one list of token ids of a body: its bounds and its digits without spaces; None for other bodies.

    Whether the list is well-formed is the server's to judge; between its brackets are digits, commas and spaces.
    """
    if _MESSAGES_KEY in body[:_HEAD_BYTES]:
        return None
    opening = _IDS_START.search(body)
    if opening is None:
        return None
    start = opening.end()
    end = body.find(b"]", start)
    digits = body[start:end]
    rest = digits.translate(None, _ID_BYTES)
    if rest:
        if end < 0 or rest.strip(_SPACE):
            return None
        digits = digits.translate(None, _SPACE)
    # Another field of that name, at whatever depth, leaves open which one it is. Among digits there is none.
    around = body[:start], body[end:]
    if any(_MESSAGES_KEY in part for part in around):
        return None
    if sum(part.count(key) for part in around for key in _PROMPT_KEYS) != 1:
        return None
    return start, end, digits

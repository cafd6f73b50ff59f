"""Field types that the kinds share: names, addresses and numbers, each with its rule as a clause.

Messages state the rule only; the path and the value are added where problems are made. Every
model is strict (a number in quotes is text), frozen and refuses unknown fields.
"""

import re
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic.alias_generators import to_camel

from services.core.locality import JURISDICTION_PATTERN, NAME_PATTERN

MAX_MODEL_CHARS = 256
MAX_URL_CHARS = 512
MAX_MS = 7 * 24 * 3600 * 1000
"""A week: longer timers are a mistake of unit."""

_KID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_REDIS = re.compile(r"(redis|rediss|unix)://\S+\Z")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?\Z|\[[0-9A-Fa-f:.]+\]\Z")


class Kind(BaseModel):
    """Base of every declared model: camelCase in files, exact types, no unknown fields, frozen."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )


def _name(value: str) -> str:
    if not NAME_PATTERN.match(value):
        raise ValueError(
            "must be 1 to 63 characters of a-z, 0-9, '.' and '-', starting and ending with a letter or digit"
        )
    return value


def _jurisdiction(value: str) -> str:
    if not JURISDICTION_PATTERN.match(value):
        raise ValueError("must be a jurisdiction code: 2 to 32 characters of a-z, 0-9 and '-'")
    return value


def _kid(value: str) -> str:
    if not _KID.match(value):
        raise ValueError("must be 1 to 64 characters of A-Z, a-z, 0-9, '_' and '-'")
    return value


def _model(value: str) -> str:
    if not 1 <= len(value) <= MAX_MODEL_CHARS or not value.isprintable() or " " in value:
        raise ValueError(f"must be 1 to {MAX_MODEL_CHARS} printable characters without spaces")
    return value


def _host(value: str) -> str:
    if not _HOST.match(value):
        raise ValueError("must be a host name, an IPv4 address or an IPv6 address in brackets")
    return value


def host_port(value: str) -> str:
    """Return `value` if it is `host:port`; raises `ValueError` with the rule."""
    host, colon, port = value.rpartition(":")
    if not colon or not _HOST.match(host) or not port.isascii() or not port.isdigit():
        raise ValueError("must be host:port, an IPv6 host in brackets")
    if not 1 <= int(port[:6]) <= 65535:
        raise ValueError("the port must lie in 1..65535")
    return value


def bootstrap_servers(value: str) -> str:
    """Return `value` if it lists `host:port[,host:port...]`; raises `ValueError` with the rule."""
    for server in value.split(","):
        host_port(server)
    return value


def redis_url(value: str) -> str:
    """Return `value` if a client can be made of it; raises `ValueError` with the rule, never with the value."""
    try:
        usable = _REDIS.match(value) is not None and urlsplit(value).port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("must be a redis://, rediss:// or unix:// URL with a valid host and port")
    return value


def _http_url(value: str) -> str:
    if len(value) > MAX_URL_CHARS or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(f"must be at most {MAX_URL_CHARS} visible ASCII characters")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ValueError("must be an http:// URL with a valid host and port") from error
    if parts.scheme == "https":
        raise ValueError("must be an http:// URL; this version speaks no TLS")
    if parts.scheme != "http" or not parts.hostname or port == 0:
        raise ValueError("must be an http:// URL with a valid host and port")
    if "@" in parts.netloc:
        raise ValueError("must not hold credentials")
    if parts.fragment:
        raise ValueError("must not have a fragment")
    return value


def _origin(value: str) -> str:
    _http_url(value)
    parts = urlsplit(value)
    if parts.path not in {"", "/"} or parts.query:
        raise ValueError("must be an origin such as http://host:port, without path or query")
    return value.removesuffix("/")


Name = Annotated[str, AfterValidator(_name)]
JurisdictionCode = Annotated[str, AfterValidator(_jurisdiction)]
KeyId = Annotated[str, AfterValidator(_kid)]
Model = Annotated[str, AfterValidator(_model)]
Host = Annotated[str, AfterValidator(_host)]
HostPort = Annotated[str, AfterValidator(host_port)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Origin = Annotated[str, AfterValidator(_origin)]

Port = Annotated[int, Field(ge=0, le=65535)]
"""0 takes the next free port."""
Ms = Annotated[int, Field(ge=0, le=MAX_MS)]
PositiveMs = Annotated[int, Field(ge=1, le=MAX_MS)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=0, le=1 << 40)]
Share = Annotated[float, Field(ge=0, le=1)]

T = TypeVar("T")


def _not_null(value: T | None) -> T:
    if value is None:
        raise ValueError("must not be null; leave the field out instead")
    return value


Given = BeforeValidator(_not_null)
"""For fields whose absence has a meaning: an empty `allowRegions:` must not read as no rule at all."""
Many = Annotated[tuple[T, ...], Strict(strict=False)]
"""A list in the file, a tuple here; its items stay strict."""

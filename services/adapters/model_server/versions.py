"""Versions of model servers: found in a document, compared, and judged against an engine's minimum.

Order is that of the version scheme Python packages use: development release, pre-release, release, post-release
(`0.9.2.dev3 < 0.9.2rc1 < 0.9.2 < 0.9.2.post1`); what follows `+` tells builds apart, not releases. Which minimum
holds is each engine's business. Source: packaging.python.org, "Version specifiers".
"""

import re

import orjson

from services.core.pods.reading import EngineIdentity

VERSION_MAX_CHARS = 64
VERSION_MAX_BYTES = 256 << 10
"""SGLang tells its version among all its arguments and the state of every rank: some tens of kilobytes."""

_FORM = re.compile(
    r"v?(?:(?P<epoch>\d{1,9})!)?(?P<release>\d{1,9}(?:\.\d{1,9}){0,7})"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_number>\d{0,9}))?"
    r"(?P<post>-(?P<bare_post>\d{1,9})|[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d{0,9}))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d{0,9}))?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?",
    re.ASCII,
)
_STAGES = {"alpha": 1, "a": 1, "beta": 2, "b": 2, "preview": 3, "pre": 3, "c": 3, "rc": 3}
_DEVELOPMENT, _RELEASE = 0, 4

VersionOrder = tuple[int, tuple[int, ...], int, int, int, int, int]


def version_in(document: bytes) -> str:
    """Return `version` of a JSON document, as every engine tells it; an empty string where there is none."""
    try:
        found = orjson.loads(document)
    except orjson.JSONDecodeError:
        return ""
    version = found.get("version") if isinstance(found, dict) else None
    return version[:VERSION_MAX_CHARS] if isinstance(version, str) and version.isprintable() else ""


def order_of(version: str) -> VersionOrder | None:
    """Return what versions are compared by; None for text that is not one."""
    found = _FORM.fullmatch(version.strip().lower())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    stage, number = _RELEASE, 0
    if found["pre"] is not None:
        stage, number = _STAGES[found["pre"]], int(found["pre_number"] or 0)
    elif found["dev"] is not None and found["post"] is None:
        stage = _DEVELOPMENT
    post = -1 if found["post"] is None else int(found["bare_post"] or found["post_number"] or 0)
    finished = 0 if found["dev"] is not None else 1
    return (
        int(found["epoch"] or 0),
        tuple(release),
        stage,
        number,
        post,
        finished,
        int(found["dev_number"] or 0),
    )


def judged(engine: str, version: str, minimum: str, metric: str) -> EngineIdentity:
    """Return the identity of a server; below `minimum` its fault is `metric`, which it does not publish right.

    A version that cannot be read is not held against the server.
    """
    told, needed = order_of(version), order_of(minimum)
    too_old = told is not None and needed is not None and told < needed
    return EngineIdentity(engine, version, metric if too_old else "")

"""Publishing a policy: the next revision of the whole snapshot onto the bus.

`gir apply`, `gir up` and `gir demo` publish through here, so a revision means the same wherever
it came from. Nothing here knows files, Kafka or how a snapshot is spread to routers.
"""

import dataclasses
from dataclasses import dataclass

from services.adapters.ports import BusPublisher, BusReader, Clock, Topic
from services.core.policy import PolicySnapshot
from services.core.units import Duration
from services.wire.errors import UndecodableError
from services.wire.policy_codec import SNAPSHOT_KEY, decode_policy, encode_policy

FIRST_REVISION = 1


class PublicationRefusedError(Exception):
    """The policy was not published, or not as the newest; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What was published. `previous` is the revision before it, None when there was none or none readable."""

    policy: PolicySnapshot
    previous: int | None


async def publish_policy(
    policy: PolicySnapshot,
    reader: BusReader,
    publisher: BusPublisher,
    clock: Clock,
    timeout: Duration,
    *,
    author: str = "",
    reason: str = "",
    revision: int | None = None,
) -> Publication:
    """Publish `policy` as the newest revision + 1, or as `revision`; return what was published.

    The revision and time within `policy` are replaced. Raises `PublicationRefusedError` when the bus
    holds a newer or unreadable snapshot or another one overtook this, `UnreachableError` when the bus
    does not answer, and `OversizeError` for a policy beyond its bound.
    """
    retained = await reader.last_value(Topic.POLICY, SNAPSHOT_KEY)
    previous = _previous(retained, revision)
    if revision is None:
        revision = FIRST_REVISION if previous is None else previous + 1
    policy = dataclasses.replace(policy, revision=revision, published_at_ms=clock.wall_ms())
    encoded = encode_policy(policy, author, reason)
    await publisher.publish(Topic.POLICY, SNAPSHOT_KEY, encoded, timeout)
    if await reader.last_value(Topic.POLICY, SNAPSHOT_KEY) != encoded:
        raise PublicationRefusedError(
            f"revision {revision} was overtaken by another apply; look at the newest one and apply again"
        )
    return Publication(policy, previous)


def _previous(retained: bytes | None, asked: int | None) -> int | None:
    if retained is None:
        return None
    try:
        newest = decode_policy(retained).revision
    except UndecodableError as error:
        if asked is None:
            raise PublicationRefusedError(
                f"the bus holds a snapshot that cannot be read ({error}); "
                "name a revision above the last good one to replace it"
            ) from error
        return None
    if asked is not None and asked <= newest:
        raise PublicationRefusedError(
            f"revision {asked} is not above {newest}, the newest; routers would ignore it"
        )
    return newest

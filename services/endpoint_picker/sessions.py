"""Which pod each session was served by last, for a while.

A session is the client's word for a conversation; staying with its pod keeps the conversation's KV cache of use.
Bounded in number and in time. Whether a session is honoured is the scheduling profile's to say.
"""

import base64
import binascii
from collections import OrderedDict
from dataclasses import dataclass, field

from services.core.units import Duration, Instant, seconds

SESSIONS_MAX = 100_000
"""Sessions remembered: some 20 MB; beyond it the one used least recently is forgotten."""
SESSION_TTL = seconds(300)
"""The field's default: a KV cache under load forgets a conversation in minutes."""


@dataclass(slots=True, eq=False)
class SessionTable:
    """Bindings from session to pod id. `most` and `ttl` bound them."""

    most: int = SESSIONS_MAX
    ttl: Duration = SESSION_TTL
    _bound: OrderedDict[str, tuple[str, Instant]] = field(default_factory=OrderedDict)

    def bind(self, session: str, pod: str, now: Instant) -> None:
        """The session was served by `pod`."""
        self._bound[session] = (pod, now)
        self._bound.move_to_end(session)
        if len(self._bound) > self.most:
            self._bound.popitem(last=False)

    def pod(self, session: str, now: Instant) -> str | None:
        """Return where the session is bound to; None when it is new or was silent for too long."""
        found = self._bound.get(session)
        if found is None:
            return None
        pod, since = found
        if now - since < self.ttl:
            return pod
        del self._bound[session]
        return None

    def sweep(self, now: Instant) -> None:
        """Forget sessions that were silent for too long; the order is that of last use."""
        while self._bound:
            session, (_, since) = next(iter(self._bound.items()))
            if now - since < self.ttl:
                return
            del self._bound[session]

    def __len__(self) -> int:
        return len(self._bound)


def session_token(pod: str) -> str:
    """Return the header value that names a pod to whoever comes back (`x-session-token`)."""
    return base64.b64encode(pod.encode()).decode()


def pod_of_token(token: str) -> str | None:
    """Return the pod that a token names; None for what is no token. It may name a pod that is gone."""
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None

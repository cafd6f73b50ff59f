"""The metrics page over HTTP answers one path."""

from collections.abc import Sequence

from services.adapters import metric_names as names
from services.adapters.telemetry.page import metrics_handler
from services.adapters.telemetry.prometheus import MetricsPage, Value
from services.wire.http1.requests import Request


class Answers:
    """Keeps what was answered."""

    def __init__(self) -> None:
        self.given: list[tuple[int, dict[bytes, bytes], bytes]] = []

    def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b"") -> None:
        self.given.append((status, dict(headers), body))


def test_the_page_and_nothing_else() -> None:
    answers = Answers()
    handle = metrics_handler(MetricsPage([lambda: [Value(names.PICKER_PICKS, 2)]]))
    handle(Request(b"GET", b"/metrics?x=1", []), answers)
    handle(Request(b"GET", b"/", []), answers)
    (status, headers, body), (missing, _, _) = answers.given
    assert (status, missing) == (200, 404)
    assert headers[b"content-type"].startswith(b"text/plain; version=0.0.4")
    assert b"gir_picker_picks_total 2.0" in body

"""The installed `gir` as a process: awaited by what it says, reported when it ends without saying it."""

from collections.abc import Callable

import pytest

from deploy.stack.errors import PartFailedError
from tests.support.processes import GirProcess, answers_200


def test_a_process_is_awaited_by_a_line_of_its_output(start_gir: Callable[..., GirProcess]) -> None:
    process = start_gir("--help")
    assert process.wait_line(r"^usage: (\w+)").group(1) == "gir"
    assert process.wait_ended() == 0


def test_a_process_that_ends_without_the_line_is_reported(start_gir: Callable[..., GirProcess]) -> None:
    with pytest.raises(PartFailedError, match="never said 'no such line'"):
        start_gir("--help").wait_line("no such line")


def test_nothing_answers_on_a_free_port(new_port: Callable[[], int]) -> None:
    assert not answers_200(f"http://127.0.0.1:{new_port()}/readyz")


def test_a_process_that_ends_before_it_serves_is_reported(
    start_gir: Callable[..., GirProcess], new_port: Callable[[], int]
) -> None:
    port = new_port()
    with pytest.raises(PartFailedError, match=r"gir---help: (ended with 0|not ready)"):
        start_gir("--help").wait_url(f"http://127.0.0.1:{port}/readyz")

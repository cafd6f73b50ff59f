import re
import signal
import socket
from collections.abc import Callable

import pytest

from services.cli.main import main
from tests.support.processes import GirProcess
from tests.worlds.test_demo import base_port


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kafka", "127.0.0.1:9092"], "--kafka and --redis go together"),
        (["--redis", "redis://127.0.0.1"], "--kafka and --redis go together"),
        (["--json"], "go with --tour"),
        (["--black-hole"], "go with --tour"),
    ],
)
def test_words_that_do_not_go_together_are_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--base-port", "0"], ["--base-port", "65400"], ["--kafka", "nowhere"]])
def test_wrong_values_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["demo", *words])
    assert left.value.code == 2


def test_a_door_in_use_is_a_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    first = base_port()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first + 100))
        taken.listen()
        assert main(["demo", "--base-port", str(first)]) == 2
    assert f"port {first + 100} on 127.0.0.1 is in use" in capsys.readouterr().err


@pytest.mark.scenario
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_demo_with_exit_code_0(
    start_gir: Callable[..., GirProcess], number: signal.Signals
) -> None:
    process = start_gir("demo", "--base-port", str(base_port()))
    process.wait_line(r"^clusters .*eu-west-1=healthy")
    process._signal(number)
    assert process.wait_ended() == 0
    assert not re.search("Traceback", process.stderr())

"""The verb as a process: what it says, how it stops, how it crashes, what it refuses."""

import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import zmq

from services.cli.exit_codes import DONE, NO, USAGE
from services.cli.main import main
from services.cli.simulate_pod import KILLED
from tests.support.processes import GIR


@pytest.fixture
def pod() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A pod in a process of its own, and its base address."""
    command = [
        str(GIR),
        "simulate-pod",
        "--port",
        "0",
        "--pod",
        "p-1",
        "--model",
        "m",
        "--alias",
        "a",
        "--alias",
        "b",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words[:4] == ["p-1", "serves", "m", "on"]
        yield process, words[4].removesuffix("/v1")
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(pod: tuple[subprocess.Popen[str], str], number: int) -> None:
    process, base = pod
    with urllib.request.urlopen(f"{base}/v1/models", timeout=10) as answer:  # noqa: S310 -- loopback
        assert [model["id"] for model in orjson.loads(answer.read())["data"]] == ["m", "a", "b"]
    process.send_signal(number)
    assert process.wait(timeout=20) == DONE


def test_the_exit_knob_ends_the_process_without_an_answer(pod: tuple[subprocess.Popen[str], str]) -> None:
    process, base = pod
    knob = urllib.request.Request(f"{base}/admin/config", data=b'{"crash": "exit"}')  # noqa: S310 -- loopback
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        urllib.request.urlopen(knob, timeout=10)  # noqa: S310 -- loopback
    assert process.wait(timeout=20) == KILLED


def _replay_of_nothing(endpoint: str) -> list[bytes]:
    """Return what a replay socket answers when nothing has been published."""
    dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    try:
        dealer.connect(endpoint)
        dealer.send_multipart((b"", bytes(8)))
        assert dealer.poll(10_000)
        return dealer.recv_multipart()
    finally:
        dealer.close(linger=0)


def test_flags_choose_engine_adapters_ranks_and_events() -> None:
    command = [
        str(GIR), "simulate-pod", "--port", "0", "--flavour", "sglang", "--engine-version", "0.5.0",
        "--page-lines", "1500", "--lora", "a", "--lora", "b", "--max-loras", "1",
        "--data-parallel-size", "2",
        "--kv-events", "tcp://127.0.0.1:0", "--kv-replay", "tcp://127.0.0.1:0", "--kv-events-map",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        base = lines[0].split()[4].removesuffix("/v1")
        with urllib.request.urlopen(f"{base}/get_server_info", timeout=10) as answer:  # noqa: S310 -- loopback
            info = orjson.loads(answer.read())
        endings = [_replay_of_nothing(line.split()[-1]) for line in lines[1:]]
        process.terminate()
        assert process.wait(timeout=20) == DONE
    assert (info["version"], info["dp_size"], info["max_loras_per_batch"]) == ("0.5.0", 2, 1)
    assert [line.split()[:4] for line in lines[1:]] == [
        ["rank", "0", "publishes", "KV"],
        ["rank", "1", "publishes", "KV"],
    ]
    assert endings == [[b"", b"\xff" * 8, b""]] * 2


def test_it_can_be_stopped_while_it_loads_weights() -> None:
    command = [str(GIR), "simulate-pod", "--port", "0", "--startup-s", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("/v1 after 600 s of loading weights\n")
        process.terminate()
        assert process.wait(timeout=20) == DONE


def test_a_port_in_use_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["simulate-pod", "--port", str(port)]) == NO
    assert capsys.readouterr().err == (
        f"gir simulate-pod: cannot listen on 127.0.0.1 port {port}: Address already in use\n"
    )


def test_every_wrong_setting_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pod.yaml"
    config.write_text("colour: red\n")
    monkeypatch.setenv("GIR_ENGINE__MAX_NUM_SEQS", "many")
    assert main(["simulate-pod", "--config", str(config), "--profile", "b200"]) == USAGE
    said = capsys.readouterr().err
    assert "colour: unknown setting" in said
    assert "engine.max_num_seqs: 'many'" in said
    assert "no such profile; known are h100-8b, a10-8b" in said


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_an_unreadable_file_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    config = tmp_path / "pod.yaml"
    if content is not None:
        config.write_bytes(content)
    assert main(["simulate-pod", "--config", str(config)]) == USAGE
    assert f"cannot read {config}" in capsys.readouterr().err


def test_another_address_needs_to_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-pod", "--host", "0.0.0.0", "--port", "0"]) == USAGE
    assert "0.0.0.0 is not a loopback address" in capsys.readouterr().err

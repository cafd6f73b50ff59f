"""What the service verbs say and how they end when something is wrong: as processes, as an operator meets them.

Each trouble is a clear sentence on standard error and an exit code, never a traceback.
"""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.stack.kafka import KafkaServer
from deploy.stack.process import wait_until
from deploy.stack.redis import RedisServer
from services.adapters.auth.key_files import render_hand_off_keys, write_private
from services.cli.exit_codes import DONE, NO, UNREACHABLE, USAGE
from tests.support.metrics import read_metrics
from tests.support.processes import GirProcess, answers_200

pytestmark = pytest.mark.scenario

Start = Callable[..., GirProcess]
Port = Callable[[], int]
FIRST_CONTACT_S = 10.0
MARGIN_S = 20.0
"""For starting an interpreter on a machine that others use too."""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def write(folder: Path, name: str, settings: dict[str, Any]) -> str:
    file = folder / name
    file.write_text(yaml.safe_dump(settings))
    return str(file)


def hand_off(folder: Path) -> str:
    file = folder / "hand-off"
    if not file.exists():
        write_private(file, render_hand_off_keys({"eu-1": b"s" * 32}).encode())
    return str(file)


def router(folder: Path, port: Port, redis: str) -> dict[str, Any]:
    return {
        "fleet": "verbs",
        "region": "eu-west",
        "jurisdiction": "eu",
        "http": {"port": port()},
        "grpc": {"port": port()},
        "metrics": {"port": port()},
        "redis": {"url": redis},
        "state_dir": str(folder / "state"),
        "hand_off_secret": hand_off(folder),
        "drain_ms": 500,
    }


def projector(port: Port, kafka: str, redis: str) -> dict[str, Any]:
    return {
        "fleet": "verbs",
        "region": "eu-west",
        "kafka": {"bootstrap": kafka},
        "redis": {"url": redis},
        "metrics": {"port": port()},
    }


def picker(folder: Path, port: Port, kafka: str) -> dict[str, Any]:
    return {
        "cluster": "eu-west-1",
        "region": "eu-west",
        "jurisdiction": "eu",
        "pools": [
            {"name": "llm", "models": ["m"], "endpoints": [{"id": "p", "address": f"127.0.0.1:{port()}"}]}
        ],
        "http": {"port": port()},
        "grpc": {"port": port()},
        "metrics": {"port": port()},
        "kafka": {"bootstrap": kafka},
        "hand_off_keys": hand_off(folder),
        "drain_ms": 500,
    }


def refused(process: GirProcess, code: int, *words: str) -> None:
    """The process ends with `code` and sentences that hold all `words`, each line under the verb's name."""
    assert process.wait_ended(MARGIN_S + FIRST_CONTACT_S) == code, process.tail()
    said = process.stderr()
    assert "Traceback" not in said
    assert said.endswith("\n")
    for word in words:
        assert word in said, said


# --- Addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_router_whose_port_is_taken_says_so(
    start_gir: Start, tmp_path: Path, new_port: Port, taken: int, door: str
) -> None:
    settings = router(tmp_path, new_port, f"redis://127.0.0.1:{new_port()}/0") | {door: {"port": taken}}
    process = start_gir("router", "--config", write(tmp_path, "router.yaml", settings))
    refused(process, NO, "gir router: cannot start", str(taken))


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_picker_whose_port_is_taken_says_so(
    start_gir: Start, tmp_path: Path, new_port: Port, taken: int, door: str
) -> None:
    settings = picker(tmp_path, new_port, f"127.0.0.1:{new_port()}") | {door: {"port": taken}}
    process = start_gir("endpoint-picker", "--config", write(tmp_path, "picker.yaml", settings))
    refused(process, NO, "gir endpoint-picker: cannot listen", str(taken))


# --- Servers that are away -------------------------------------------------------------------------------


def test_a_projector_without_one_of_its_servers_names_it_and_ends_with_3(
    start_gir: Start, tmp_path: Path, new_port: Port, kafka_server: KafkaServer, redis_server: RedisServer
) -> None:
    no_bus = projector(new_port, f"127.0.0.1:{new_port()}", redis_server.url)
    no_store = projector(new_port, kafka_server.bootstrap, f"redis://127.0.0.1:{new_port()}/0")
    without = {
        away: start_gir("projector", "--config", write(tmp_path, f"{away}.yaml", settings), name=away)
        for away, settings in (("bus", no_bus), ("store", no_store))
    }
    for away, process in without.items():
        refused(process, UNREACHABLE, f"gir projector: the {away} was not reached within 10 s")


def test_apply_without_kafka_ends_with_3(start_gir: Start, tmp_path: Path, new_port: Port) -> None:
    kinds: list[dict[str, Any]] = [
        {"kind": "Fleet", "spec": {"clusters": [], "models": [{"name": "m"}]}},
    ]
    documents = [{"apiVersion": "gir.dev/v1alpha1", "metadata": {"name": "verbs"}, **kind} for kind in kinds]
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    port = new_port()
    process = start_gir("apply", str(file), "--kafka", f"127.0.0.1:{port}")
    refused(process, UNREACHABLE, "gir apply: ", str(port))


def test_a_router_without_policy_and_store_stays_up_and_is_not_ready(
    start_gir: Start, tmp_path: Path, new_port: Port
) -> None:
    """It opens its doors, answers that it is not ready, says why every ten seconds, and ends in order."""
    settings = router(tmp_path, new_port, f"redis://127.0.0.1:{new_port()}/0")
    process = start_gir("router", "--config", write(tmp_path, "router.yaml", settings))
    http = settings["http"]["port"]
    process.wait_url(f"http://127.0.0.1:{http}/healthz")
    assert not answers_200(f"http://127.0.0.1:{http}/readyz")
    assert read_metrics(settings["metrics"]["port"])["gir_router_ready"] == 0
    process.wait_line(r"the store is away, keeping what is known")
    process.wait_line(r"not ready, no policy: the store has given none")
    assert process.stop() == DONE
    assert "Traceback" not in process.stderr()


def test_a_router_with_neither_policy_nor_an_address_of_a_store_ends_with_2(
    start_gir: Start, tmp_path: Path, new_port: Port
) -> None:
    process = start_gir("router", "--config", write(tmp_path, "r.yaml", router(tmp_path, new_port, "")))
    refused(process, USAGE, "gir router: neither redis.url nor a policy on disk")


def test_a_picker_without_kafka_serves_and_keeps_trying(
    start_gir: Start, tmp_path: Path, new_port: Port
) -> None:
    settings = picker(tmp_path, new_port, f"127.0.0.1:{new_port()}")
    process = start_gir("endpoint-picker", "--config", write(tmp_path, "picker.yaml", settings))
    process.wait_url(f"http://127.0.0.1:{settings['http']['port']}/healthz")
    metrics = settings["metrics"]["port"]
    process.wait_line("kafka")
    assert read_metrics(metrics)["gir_picker_bus_connected"] == 0
    assert read_metrics(metrics)["gir_picker_publishing"] == 0
    assert process.stop() == DONE
    assert "Traceback" not in process.stderr()


@pytest.mark.parametrize("verb", ["endpoint-picker", "projector"])
def test_a_service_without_an_address_of_the_bus_ends_with_2(
    start_gir: Start, tmp_path: Path, new_port: Port, verb: str
) -> None:
    redis = f"redis://127.0.0.1:{new_port()}/0"
    settings = picker(tmp_path, new_port, "") if verb == "endpoint-picker" else projector(new_port, "", redis)
    process = start_gir(verb, "--config", write(tmp_path, "s.yaml", settings))
    refused(process, USAGE, f"gir {verb}: ", "kafka.bootstrap")


# --- Settings ---------------------------------------------------------------------------------------------

SERVICES = ("router", "projector", "endpoint-picker")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ("cannot read", "No such file")),
        (b"\xff\xfe\x00", ("cannot read",)),
        (b"colour: red\n", ("colour: unknown setting",)),
    ],
    ids=["missing", "not UTF-8", "unknown field"],
)
def test_bad_settings_are_sentences_and_2(
    start_gir: Start, tmp_path: Path, content: bytes | None, words: tuple[str, ...]
) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_bytes(content)
    for verb, process in [(verb, start_gir(verb, "--config", str(file))) for verb in SERVICES]:
        refused(process, USAGE, f"gir {verb}: ", str(file), *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", ("policy.yaml",)),
        (b"apiVersion: gir.dev/v1alpha1\nkind: Fleet\nmetadata: {name: x}\nspec: {clusters: [], colour: red}\n",
         ("spec.colour", "is not a field of this kind")),
        (b"kind: Fleet\n", ("apiVersion",)),
    ],
    ids=["not UTF-8", "unknown field", "no version"],
)  # fmt: skip
def test_apply_publishes_nothing_of_a_bad_policy(
    start_gir: Start, tmp_path: Path, new_port: Port, content: bytes, words: tuple[str, ...]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(content)
    process = start_gir("apply", str(file), "--kafka", f"127.0.0.1:{new_port()}")
    refused(process, NO, "nothing was published", *words)


def test_apply_of_a_file_that_is_not_there_ends_with_2(
    start_gir: Start, tmp_path: Path, new_port: Port
) -> None:
    process = start_gir("apply", str(tmp_path / "none.yaml"), "--kafka", f"127.0.0.1:{new_port()}")
    refused(process, USAGE, "gir apply: ", "none.yaml", "No such file")


@pytest.mark.parametrize("mode", [0o644, None], ids=["readable by others", "missing"])
def test_a_secret_that_is_not_private_or_not_there_ends_with_2(
    start_gir: Start, tmp_path: Path, new_port: Port, mode: int | None
) -> None:
    settings = router(tmp_path, new_port, f"redis://127.0.0.1:{new_port()}/0")
    secret = Path(settings["hand_off_secret"])
    if mode is None:
        secret.unlink()
    else:
        secret.chmod(mode)
    process = start_gir("router", "--config", write(tmp_path, "router.yaml", settings))
    refused(process, USAGE, "gir router: ", str(secret))


def test_metrics_take_the_next_free_port_and_say_which(
    start_gir: Start, tmp_path: Path, new_port: Port, taken: int
) -> None:
    settings = router(tmp_path, new_port, f"redis://127.0.0.1:{new_port()}/0") | {"metrics": {"port": taken}}
    process = start_gir("router", "--config", write(tmp_path, "router.yaml", settings))
    metrics = int(process.wait_line(r"metrics 127\.0\.0\.1:(\d+)").group(1))
    assert metrics != taken
    assert wait_until(lambda: "gir_router_ready" in read_metrics(metrics), MARGIN_S)

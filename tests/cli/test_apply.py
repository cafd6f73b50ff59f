import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.stack.kafka import KafkaServer
from services.adapters.memory.bus import MemoryBus
from services.adapters.ports import Topic
from services.adapters.system.clock import SystemClock
from services.cli import apply
from services.core.policy import PolicySnapshot
from services.core.units import WallMs
from services.wire.config.load import load, to_policy
from services.wire.policy_codec import SNAPSHOT_KEY, decode_published
from tests.wire.config import example

CLOCK = SystemClock()
GATEWAY = """\
apiVersion: gir.dev/v1alpha1
kind: InferenceGateway
metadata: {name: chat}
spec:
  auth: {mode: none}
  waive: [auth-none]
  pools:
    - name: chat
      selector: {app: chat}
      models: [{name: llama}]
"""
POLICY = to_policy(load(example.EVERYTHING), 1, WallMs(0))


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    apply.add_parser(parser.add_subparsers())
    return parser.parse_args(["apply", *words])


async def over(bus: MemoryBus, *words: str, policy: PolicySnapshot = POLICY) -> int:
    args = parsed("unread.yaml", "--kafka", "localhost:9092", *words)
    return await apply.apply(args, policy, bus.reader([Topic.POLICY]), bus.publisher(), CLOCK)


async def test_a_policy_is_published_with_its_author_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    bus = MemoryBus(CLOCK)
    assert await over(bus, "--author", "ops", "--reason", "first") == 0
    assert await over(bus) == 0
    assert capsys.readouterr().out.splitlines() == [
        "revision 1 published (the first): 2 clusters, 2 models, 1 tenants",
        "revision 2 published (after 1): 2 clusters, 2 models, 1 tenants",
    ]
    assert await over(bus, "--revision", "9", "--author", "ops", "--reason", "jump") == 0
    stored = await bus.reader([Topic.POLICY]).last_value(Topic.POLICY, SNAPSHOT_KEY)
    assert stored is not None
    published = decode_published(stored)
    assert (published.policy.revision, published.author, published.reason) == (9, "ops", "jump")
    assert published.policy.tenants == POLICY.tenants


async def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert await over(MemoryBus(CLOCK), "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "revision": 1,
        "previous": None,
        "clusters": 2,
        "models": 2,
        "tenants": 1,
    }


async def test_a_refusal_exits_1_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    bus = MemoryBus(CLOCK)
    bus.append(Topic.POLICY, SNAPSHOT_KEY, b"\xff")
    assert await over(bus) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gir apply: the bus holds a snapshot that cannot be read")


async def test_a_bus_that_is_away_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    bus = MemoryBus(CLOCK)
    bus.stop()
    assert await over(bus) == 3
    assert capsys.readouterr().err == "gir apply: read gir.policy: the bus is stopped\n"


def test_invalid_files_publish_nothing_and_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(example.TENANT.replace("[eu]", "[EU]"))
    assert apply.run(parsed(str(path), "--kafka", "localhost:1")) == 1
    err = capsys.readouterr().err
    assert f"{path}: spec.residency.allowJurisdictions[0]: 'EU'" in err
    assert err.endswith("gir apply: nothing was published\n")


def test_unreadable_files_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert apply.run(parsed(str(tmp_path / "no.yaml"), "--kafka", "localhost:1")) == 2
    assert capsys.readouterr().err == f"gir apply: {tmp_path / 'no.yaml'}: No such file or directory\n"


def test_a_kafka_that_is_away_exits_3(
    tmp_path: Path, new_port: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(example.FLEET)
    assert apply.run(parsed(str(path), "--kafka", f"127.0.0.1:{new_port()}")) == 3
    err = capsys.readouterr().err
    assert "gir apply: read gir.policy on kafka 127.0.0.1:" in err
    assert "Traceback" not in err


@pytest.mark.server
def test_revisions_count_on_over_real_kafka(
    tmp_path: Path, kafka_server: KafkaServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(example.EVERYTHING)
    revisions = []
    for _ in range(2):
        assert apply.run(parsed(str(path), "--kafka", kafka_server.bootstrap, "--output", "json")) == 0
        revisions.append(json.loads(capsys.readouterr().out)["revision"])
    assert revisions[1] == revisions[0] + 1


@pytest.mark.parametrize(
    "words",
    [
        ("--kafka", "localhost"),
        ("--kafka", "localhost:9092,"),
        ("--kafka", "localhost:0"),
        ("--kafka", "localhost:9092", "--revision", "0"),
        ("--kafka", "localhost:9092", "--revision", "-1"),
        ("--kafka", "localhost:9092", "--revision", "9" * 20),
        ("--kafka", "localhost:9092", "--reason", "two\nlines"),
        ("--kafka", "localhost:9092", "--author", "x" * 300),
        (),
    ],
)
def test_wrong_words_are_usage_errors(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parsed("f.yaml", *words)
    assert left.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_documents_that_are_no_part_of_a_policy_are_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever else is wrong: here the Fleet is missing, so that no bus is asked."""
    site, gateway = tmp_path / "site.yaml", tmp_path / "gateway.yaml"
    site.write_text(example.SITE)
    gateway.write_text(GATEWAY)
    assert apply.run(parsed(str(site), str(gateway), "--kafka", "127.0.0.1:9")) == 1
    lines = capsys.readouterr().err.splitlines()
    assert (
        f"gir apply: not published, as no part of a policy: InferenceGateway chat ({gateway}), Site ({site})"
        in lines
    )

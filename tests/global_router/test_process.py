"""One router as a whole: what it takes from its policy, and that a failed start leaves nothing open."""

import dataclasses
import socket
from pathlib import Path

import pytest

from services.adapters.auth.key_files import render_cluster_keys, render_hand_off_keys, write_private
from services.adapters.ports import ChangeKind
from services.core.fleet import ReportId
from services.core.locality import ClusterId
from services.core.policy import Timeouts
from services.core.units import ms
from services.global_router.assembly import build
from services.global_router.policy_file import FILE_NAME
from services.global_router.settings import GrpcDoor, HttpDoor, RouterSettings
from services.wire.config.listeners import MetricsDoor
from services.wire.config.settings_source import SettingsError
from services.wire.policy_codec import encode_policy
from tests.global_router.rig import running
from tests.support.wait import eventually


def settings(folder: Path) -> RouterSettings:
    return RouterSettings(
        fleet="test",
        region="eu-west",
        jurisdiction="eu",
        http=HttpDoor(port=0),
        grpc=GrpcDoor(port=0),
        metrics=MetricsDoor(port=0),
        state_dir=folder / "state",
        hand_off_secret=folder / "secret",
    )


def test_a_cluster_s_derived_keys_are_no_region_secret(tmp_path: Path) -> None:
    derived = render_cluster_keys(ClusterId("eu-a"), {"eu1": b"s" * 32})
    write_private(tmp_path / "secret", derived.encode())
    with pytest.raises(SettingsError, match=r"hand_off_secret: .*holds the hand-off keys of cluster eu-a"):
        build(settings(tmp_path))


async def test_a_policy_file_that_cannot_be_read_closes_the_doors_again(tmp_path: Path) -> None:
    (tmp_path / "state" / FILE_NAME).mkdir(parents=True)
    write_private(tmp_path / "secret", render_hand_off_keys({"eu1": b"s" * 32}).encode())
    router = build(settings(tmp_path))
    with pytest.raises(IsADirectoryError):
        await router.start()
    for port in (router.http_port, router.grpc_port, router.metrics_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()


async def test_the_policy_says_how_long_a_connection_may_take(tmp_path: Path) -> None:
    """A gateway whose backlog is full answers no handshake; the policy's limit moves the request on."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = int(full.getsockname()[1])
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        async with running(tmp_path, timeouts=Timeouts(connect=ms(50))) as rig:
            assert rig.router.pool.connect_ms == 50
            cluster = rig.policy.clusters[0]
            moved = dataclasses.replace(cluster, gateway_url=f"http://127.0.0.1:{port}")
            policy = dataclasses.replace(rig.policy, revision=2, clusters=(moved, *rig.policy.clusters[1:]))
            await rig.store.put(
                ChangeKind.POLICY, "snapshot", ReportId(2, 0), encode_policy(policy), live=True
            )
            await eventually(lambda: rig.router.view.policy == policy, what="the new policy")
            response = await rig.post()
            assert response.headers["x-gir-cluster"] == "us-a"
            assert [attempt.outcome for attempt in rig.records()[-1].attempts] == [
                "connect_failed",
                "answered",
            ]
        for filler in fillers:
            filler.close()

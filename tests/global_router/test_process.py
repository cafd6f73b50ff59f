"""A router that cannot start leaves nothing open behind it."""

import socket
from pathlib import Path

import pytest

from services.adapters.auth.key_files import render_hand_off_keys, write_private
from services.global_router.assembly import build
from services.global_router.policy_file import FILE_NAME
from services.global_router.settings import GrpcDoor, HttpDoor, MetricsDoor, RouterSettings


async def test_a_policy_file_that_cannot_be_read_closes_the_doors_again(tmp_path: Path) -> None:
    (tmp_path / "state" / FILE_NAME).mkdir(parents=True)
    write_private(tmp_path / "secret", render_hand_off_keys({"eu1": b"s" * 32}).encode())
    router = build(
        RouterSettings(
            fleet="test",
            region="eu-west",
            jurisdiction="eu",
            http=HttpDoor(port=0),
            grpc=GrpcDoor(port=0),
            metrics=MetricsDoor(port=0),
            state_dir=tmp_path / "state",
            hand_off_secret=tmp_path / "secret",
        )
    )
    with pytest.raises(IsADirectoryError):
        await router.start()
    for port in (router.http_port, router.grpc_port, router.metrics_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()

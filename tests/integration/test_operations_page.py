"""The operations page, followed literally: its files are written, its commands run, its request served."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.stack.kafka import KafkaServer
from deploy.stack.redis import RedisServer

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_FILE = re.compile(r"```yaml\n(# (\S+)\n.*?)```", re.DOTALL)
_COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_PATIENCE_S = 100


def with_ports(text: str, kafka: KafkaServer, redis: RedisServer, new_port: Callable[[], int]) -> str:
    """Return the page with this machine's servers, and ports nobody else uses, in place of its own."""
    text = text.replace("127.0.0.1:9092", kafka.bootstrap).replace("redis://127.0.0.1:6379/0", redis.url)
    for port in (8080, 7000, 8000, 9002, 8100, 9190, 9191, 9192):
        text = re.sub(rf"\b{port}\b", str(new_port()), text)
    return text


@pytest.mark.scenario
def test_following_the_page_serves_a_request(
    own_kafka: KafkaServer, own_redis: RedisServer, new_port: Callable[[], int], tmp_path: Path
) -> None:
    page = with_ports(PAGE.read_text(), own_kafka, own_redis, new_port)
    for text, name in _FILE.findall(page):
        (tmp_path / name).write_text(text)
    setting_up, *blocks = _COMMANDS.findall(page)
    assert "export PATH" in setting_up
    script = "set -euo pipefail\n" + "\n".join(blocks)
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-m", "-c", script],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path), "USER": "operator"},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"object":"chat.completion"' in done.stdout
    assert "eu-west-a" in done.stdout
    assert "llama-0" in done.stdout
    assert "Traceback" not in done.stderr
    assert (tmp_path / "decisions.jsonl").read_text().count('"cluster":"eu-west-a"') >= 1

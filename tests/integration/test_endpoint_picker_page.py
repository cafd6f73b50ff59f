"""The page of the endpoint picker: a process starts with its files as shown, beside nothing that they name."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from services.adapters.auth.key_files import write_private
from services.cli.exit_codes import DONE
from tests.support.metrics import read_metrics
from tests.support.processes import GirProcess

PAGE = Path(__file__).parents[2] / "docs" / "endpoint-picker.md"
_FILE = re.compile(r"```yaml\n# (\S+)\n(.*?)```", re.DOTALL)


def test_a_picker_starts_with_every_section_of_the_page_and_serves_without_its_servers(
    start_gir: Callable[..., GirProcess], new_port: Callable[[], int], tmp_path: Path
) -> None:
    files = dict(_FILE.findall(PAGE.read_text()))
    settings = files["endpoint-picker.yaml"]
    for name in ("picker-config.yaml", "prefix.secret"):
        settings = settings.replace(name, str(tmp_path / name))
    for port in (8000, 9002, 9003, 9190, 8100, 6379, 4318, 5557, 5558):
        settings = re.sub(rf"\b{port}\b", str(new_port()), settings)
    (tmp_path / "endpoint-picker.yaml").write_text(settings)
    (tmp_path / "picker-config.yaml").write_text(files["picker-config.yaml"])
    write_private(tmp_path / "prefix.secret", b"s" * 32)
    picker = start_gir("endpoint-picker", "--config", str(tmp_path / "endpoint-picker.yaml"))
    http, metrics = picker.wait_line(r"cluster eu-west-1: http \S+:(\d+) grpc \S+ metrics \S+:(\d+)").groups()
    picker.wait_url(f"http://127.0.0.1:{http}/healthz")
    samples = read_metrics(int(metrics))
    assert samples["gir_picker_prefix_feed_connected"] == 0
    assert samples['gir_picker_prefix_entries{index="precise"}'] == 0
    os.kill(picker.pid, signal.SIGTERM)
    assert picker.wait_ended() == DONE
    assert "Traceback" not in picker.stderr()

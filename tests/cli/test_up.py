import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from services.cli.main import main
from services.worlds.topology_ports import HostPorts
from tests.support.processes import GirProcess, answers_200
from tests.wire.config.example import FLEET

SITE = """\
apiVersion: gir.dev/v1alpha1
kind: Fleet
metadata: {{name: house}}
spec:
  clusters:
    - id: eu-a
      region: eu-west
      jurisdiction: eu
      gatewayUrl: http://127.0.0.1:{gateway}
      probeUrl: http://127.0.0.1:{gateway}/readyz
  models: [{{name: m1}}]
---
apiVersion: gir.dev/v1alpha1
kind: Site
metadata: {{name: laptop}}
spec:
  stateDir: {state}
  regions: [{{region: eu-west, jurisdiction: eu, httpPort: {door}, grpcPort: 0}}]
  pickers: [{{cluster: eu-a, httpPort: 0, grpcPort: 0, pools: [{{name: p, model: m1, simulatedPods: 1}}]}}]
"""


def test_a_file_that_cannot_be_read_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "/nowhere/site.yaml"]) == 2
    assert "/nowhere/site.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [("kind: Site\n", "apiVersion"), ("a: [", "site.yaml"), (FLEET, "no Site")],
)
def test_a_wrong_configuration_is_said_and_nothing_starts(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(text)
    assert main(["up", str(file)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.scenario
def test_a_site_comes_up_and_stops_in_order(tmp_path: Path, start_gir: Callable[..., GirProcess]) -> None:
    ports = HostPorts()
    door = ports.next_free(24_080)
    file = tmp_path / "site.yaml"
    file.write_text(SITE.format(gateway=ports.next_free(24_000), door=door, state=tmp_path / "state"))
    process = start_gir("up", str(file))
    process.wait_line(r"^clusters eu-a=healthy\(1/1\)")
    assert answers_200(f"http://127.0.0.1:{door}/readyz")
    process._signal(signal.SIGTERM)
    assert process.wait_ended() == 0

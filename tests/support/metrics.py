"""Reading a service's `/metrics` page in tests: sample as printed -> value."""

import urllib.request
from collections.abc import Mapping

TIMEOUT_S = 5.0


def read_metrics(port: int) -> Mapping[str, float]:
    """Return every sample of the page on `port` of loopback; raises `OSError` when nobody answers.

    A key is the sample as the page prints it, such as `gir_router_probes_total{result="ok"}`.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    return samples

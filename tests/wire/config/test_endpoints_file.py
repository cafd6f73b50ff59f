"""Endpoints files: the field's form, ours beside it, and each refusal with file, path, value and rule."""

from typing import Any

import pytest
import yaml

from services.core.pods.discovered import DiscoveredEndpoint, StartPhase
from services.wire.config.endpoints_file import MAX_BYTES, EndpointsFileError, read_endpoints

FIELD = b"""
endpoints:
- {name: a, namespace: default, address: 10.0.0.1, port: 8000, labels: {role: decode}}
- {name: a, namespace: other, address: 10.0.0.2, port: "8000"}
"""
OURS = b"""
endpoints:
- name: b
  address: "[fd00::1]"
  ports: [8000, 8001]
  engine: sglang
  zone: z1
  draining: true
  ready: false
  phase: loading
  capacityRequests: 64
  capacityTokensPerS: 1000.5
"""
ENTRY = {"name": "a", "address": "10.0.0.1", "port": 8000}


def test_the_fields_own_form_is_read() -> None:
    assert read_endpoints(FIELD, "endpoints.yaml") == (
        DiscoveredEndpoint("a", "10.0.0.1", (8000,), labels={"role": "decode"}),
        DiscoveredEndpoint("other.a", "10.0.0.2", (8000,)),
    )


def test_our_fields_stand_beside_it() -> None:
    assert read_endpoints(OURS, "endpoints.yaml") == (
        DiscoveredEndpoint(
            "b",
            "fd00::1",
            (8000, 8001),
            engine="sglang",
            zone="z1",
            draining=True,
            ready=False,
            phase=StartPhase.LOADING,
            capacity_requests=64,
            capacity_tokens_per_s=1000.5,
        ),
    )


def test_no_endpoint_is_a_set_too() -> None:
    assert read_endpoints(b"endpoints: []", "f") == ()


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "pod-0.pods.example", "[::1]"])
def test_addresses_lose_their_brackets(address: str) -> None:
    [endpoint] = read_endpoints(yaml.safe_dump({"endpoints": [ENTRY | {"address": address}]}).encode(), "f")
    assert endpoint.address == address.strip("[]")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "f: endpoints[0].name: '': endpoint-name: must be 1 to 64 letters"),
        ({"name": "a/b"}, "f: endpoints[0].name: 'a/b': endpoint-name"),
        ({"address": "10.0.0.1:8000"}, "f: endpoints[0].address: '10.0.0.1:8000': endpoint-address"),
        ({"address": "[10.0.0.1"}, "endpoint-address: must be an IP address or a host name"),
        ({"port": 0}, "f: endpoints[0].port: 0: endpoint-port: must lie in 1..65535"),
        ({"port": "http"}, "f: endpoints[0].port: 'http': must be a whole number"),
        ({"port": None}, "f: endpoints[0]: a mapping of 3: endpoint-ports"),
        ({"ports": [8001]}, "endpoint-ports: must be `port`, or `ports` with 1 to 8 different ones"),
        ({"port": None, "ports": [1, 1]}, "endpoint-ports"),
        ({"port": None, "ports": [*range(1, 10)]}, "endpoint-ports"),
        ({"phase": "warm"}, "endpoints[0].phase: 'warm': endpoint-phase: must be one of scheduled, pulling"),
        ({"capacityRequests": 0}, "f: endpoints[0].capacityRequests: 0: must be greater than or equal to 1"),
        ({"adress": "x"}, "f: endpoints[0].adress: 'x': is not a field of this kind"),
    ],
)
def test_each_broken_rule_is_named_with_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EndpointsFileError) as refused:
        read_endpoints(yaml.safe_dump({"endpoints": [ENTRY | changes]}).encode(), "f")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "f: (document): 0 documents: must be one mapping with `endpoints`"),
        (b"[]", "f: (document): a list of 0: must be one mapping"),
        (b"endpoints: [\n", "f: (document): line "),
        (b"endpoints: []\n---\nendpoints: []", "2 documents"),
        (b"{}", "f: endpoints: (missing): is required"),
        (b"#" * (MAX_BYTES + 1), f"must not exceed {MAX_BYTES} bytes"),
        (yaml.safe_dump({"endpoints": [ENTRY, ENTRY]}).encode(), "endpoints[1].name: 'a': endpoint-unique"),
    ],
)
def test_a_file_that_is_none_is_refused_whole(data: bytes, said: str) -> None:
    with pytest.raises(EndpointsFileError) as refused:
        read_endpoints(data, "f")
    assert said in str(refused.value)

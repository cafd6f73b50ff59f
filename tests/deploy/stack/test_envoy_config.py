"""The bootstrap in front of a picker: what each choice changes, and what must hold in all of them."""

import json
from typing import Any

import pytest

from deploy.stack.envoy_config import DESTINATION, Body, Follow, Gateway, bootstrap

PODS = ("127.0.0.1:8000", "[::1]:8001")


def gateway(**changes: Any) -> Gateway:
    fields: dict[str, Any] = {
        "name": "g",
        "port": 10000,
        "picker": "127.0.0.1:9002",
        "endpoints": PODS,
    } | changes
    return Gateway(**fields)


def resources(found: Gateway) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    document = json.loads(json.dumps(bootstrap([found], 10001)))["static_resources"]
    filters = document["listeners"][0]["filter_chains"][0]["filters"]
    return filters[0]["typed_config"], {each["name"]: each for each in document["clusters"]}


def ext_proc(found: Gateway) -> dict[str, Any]:
    connections, _ = resources(found)
    (config,) = [
        each["typed_config"] for each in connections["http_filters"] if each["name"].endswith("ext_proc")
    ]
    return dict(config)


@pytest.mark.parametrize("follow", [Follow.METADATA, Follow.HEADER])
def test_a_clients_destination_is_gone_before_the_first_filter(follow: Follow) -> None:
    """With ORIGINAL_DST and a dead picker it would otherwise be the client who says where Envoy connects."""
    connections, _ = resources(gateway(follow=follow, fail_open=True))
    (early,) = connections["early_header_mutation_extensions"]
    assert early["typed_config"]["mutations"] == [{"remove": DESTINATION}]


def test_the_choice_is_followed_among_listed_hosts_from_metadata_alone() -> None:
    _, clusters = resources(gateway())
    hosts = clusters["g-pods"]["load_assignment"]["endpoints"][0]["lb_endpoints"]
    places = [each["endpoint"]["address"]["socket_address"] for each in hosts]
    assert places == [{"address": "127.0.0.1", "port_value": 8000}, {"address": "::1", "port_value": 8001}]
    (policy,) = clusters["g-pods"]["load_balancing_policy"]["policies"]
    config = policy["typed_extension_config"]["typed_config"]
    assert config["override_host_sources"] == [
        {"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}}
    ]
    assert config["fallback_policy"]["policies"]


def test_gateway_api_implementations_follow_the_header() -> None:
    _, clusters = resources(gateway(follow=Follow.HEADER))
    assert clusters["g-pods"]["type"] == "ORIGINAL_DST"
    assert clusters["g-pods"]["original_dst_lb_config"]["http_header_name"] == DESTINATION


def test_phases_and_failure_are_choices() -> None:
    skipped = ext_proc(gateway())["processing_mode"]
    assert (skipped["request_body_mode"], skipped["response_header_mode"]) == ("FULL_DUPLEX_STREAMED", "SKIP")
    whole = ext_proc(gateway(responses=True))["processing_mode"]
    assert (whole["response_body_mode"], whole["response_trailer_mode"]) == ("FULL_DUPLEX_STREAMED", "SEND")
    buffered = ext_proc(gateway(body=Body.BUFFERED, fail_open=True, message_timeout_s=1.5))
    assert buffered["processing_mode"]["request_body_mode"] == "BUFFERED"
    assert (buffered["failure_mode_allow"], buffered["message_timeout"]) == (True, "1.5s")


def test_without_a_picker_nothing_is_asked() -> None:
    connections, clusters = resources(gateway(picker=None, subset_header=True))
    names = [each["name"] for each in connections["http_filters"]]
    assert names == ["envoy.filters.http.header_to_metadata", "envoy.filters.http.router"]
    assert set(clusters) == {"g-pods"}

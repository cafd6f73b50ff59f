import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import PodRecord, PodsReport, PodState, ReportId
from services.core.locality import ClusterId
from services.core.units import WallMs
from services.wire.errors import OversizeError, UndecodableError
from services.wire.gen.gir.v1 import pods_pb2
from services.wire.pods_codec import MAX_PODS_BYTES, decode_pods, encode_pods, pods_key
from tests.wire import golden_files
from tests.wire.strategies import pods_reports

POD = PodRecord("llama-0", "10.0.0.1:8000", PodState.READY, "vllm", "0.9.2", WallMs(1_700))
REPORT = PodsReport(ClusterId("eu-west-a"), "llama", ReportId(7, 3), (POD,))
GOLDEN = dataclasses.replace(
    REPORT,
    pods=tuple(
        dataclasses.replace(POD, id=f"llama-{state.value}", state=state, reason="r") for state in PodState
    ),
    pods_truncated=True,
)


@given(pods_reports())
def test_round_trip(report: PodsReport) -> None:
    """Invariant: a legal pod list survives the trip unchanged."""
    assert decode_pods(encode_pods(report)) == report


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    """Invariant: no bytes make the decoder raise anything but UndecodableError."""
    try:
        report = decode_pods(data)
    except UndecodableError:
        return
    assert decode_pods(encode_pods(report)) == report


def test_golden_file_of_version_1() -> None:
    golden_files.check("pods_report_v1.bin", encode_pods(GOLDEN))
    assert decode_pods(golden_files.read("pods_report_v1.bin")) == GOLDEN


def test_unknown_fields_are_ignored() -> None:
    assert decode_pods(encode_pods(REPORT) + b"\xc2\x3e\x03new") == REPORT


@pytest.mark.parametrize("number", [0, 99])
def test_a_state_this_build_does_not_know_counts_as_failed(number: int) -> None:
    message = pods_pb2.PodsReport.FromString(encode_pods(REPORT))
    message.pods[0].ClearField("state")
    # Field 3, varint: an enum number the stub has no name for.
    data = message.pods[0].SerializeToString() + bytes([0x18, number])
    message.pods[0].CopyFrom(pods_pb2.PodRecord.FromString(data))
    assert decode_pods(message.SerializeToString()).pods[0].state is PodState.FAILED


def test_pods_that_do_not_fit_are_cut_from_the_end_and_marked() -> None:
    pods = tuple(dataclasses.replace(POD, id=f"llama-{number:06d}") for number in range(20_000))
    encoded = encode_pods(dataclasses.replace(REPORT, pods=pods))
    assert MAX_PODS_BYTES - 64 < len(encoded) <= MAX_PODS_BYTES
    decoded = decode_pods(encoded)
    assert decoded.pods_truncated
    assert decoded.pods == pods[: len(decoded.pods)]


def test_a_report_that_cannot_be_cut_enough_is_an_error_of_the_writer() -> None:
    with pytest.raises(OversizeError, match="the names alone exceed"):
        encode_pods(dataclasses.replace(REPORT, pool="p" * (MAX_PODS_BYTES + 1)))


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (dataclasses.replace(REPORT, cluster=ClusterId("")), "cluster ''"),
        (dataclasses.replace(REPORT, pool="a/b"), "pool 'a/b'"),
        (dataclasses.replace(REPORT, pods=(dataclasses.replace(POD, id=""),)), "pod id is missing"),
        (dataclasses.replace(REPORT, pods=(dataclasses.replace(POD, address=""),)), "address is missing"),
        (dataclasses.replace(REPORT, pods=(dataclasses.replace(POD, since_ms=WallMs(-1)),)), "since_ms -1"),
        (dataclasses.replace(REPORT, pods=(POD, POD)), "same pod"),
    ],
)
def test_illegal_reports_are_refused_by_name(report: PodsReport, why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        decode_pods(encode_pods(report))


def test_key_names_cluster_and_pool() -> None:
    assert pods_key("eu-west-a", "llama") == "eu-west-a/llama"

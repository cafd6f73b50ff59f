import contextlib
import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.fleet import HealthReport, PoolReport, ReportId
from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Region
from services.core.units import WallMs
from services.wire.errors import OversizeError, UndecodableError
from services.wire.gen.gir.v1 import health_pb2
from services.wire.health_codec import MAX_REPORT_BYTES, decode_report, encode_report
from tests.wire import golden_files
from tests.wire.strategies import health_reports

POOL = PoolReport("llama", ModelName("llama-3.1-8b"), ready_endpoints=3, total_endpoints=4)
REPORT = HealthReport(
    ClusterId("eu-west-a"), ReportId(7, 3), Region("eu-west"), Jurisdiction("eu"), WallMs(1_700), (POOL,)
)
GOLDEN = dataclasses.replace(
    REPORT,
    pools=(
        dataclasses.replace(
            POOL,
            waiting=2,
            running=0,
            capacity_requests=768,
            capacity_tokens_per_s=9000.5,
            kv_use_mean=0.5,
            kv_use_max=0.75,
            saturation=1.25,
            ttft_ms_p50=80.0,
            ttft_ms_p95=200.0,
            resident_adapters=("sql-v2",),
            waiting_adapters=("legal-v1",),
            engine="vllm",
            tier="reserved",
            warming_endpoints=1,
            warming_eta_ms=30_000,
            draining=True,
        ),
        dataclasses.replace(POOL, model=ModelName("other")),
    ),
    draining=True,
)


def message() -> health_pb2.HealthReport:
    return health_pb2.HealthReport.FromString(encode_report(REPORT))


@given(health_reports())
def test_round_trip(report: HealthReport) -> None:
    """Invariant: a legal report survives the trip unchanged."""
    assert decode_report(encode_report(report)) == report


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    """Invariant: no bytes make the decoder raise anything but UndecodableError."""
    try:
        report = decode_report(data)
    except UndecodableError:
        return
    assert decode_report(encode_report(report)) == report


@given(health_reports(), st.data())
def test_damaged_reports_decode_or_are_refused(report: HealthReport, data: st.DataObject) -> None:
    """Invariant: a report with one byte changed decodes or raises UndecodableError."""
    encoded = bytearray(encode_report(report))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UndecodableError):
        assert isinstance(decode_report(bytes(encoded)), HealthReport)


def test_golden_file_of_version_1() -> None:
    golden_files.check("health_report_v1.bin", encode_report(GOLDEN))
    assert decode_report(golden_files.read("health_report_v1.bin")) == GOLDEN


def test_unknown_fields_are_ignored() -> None:
    # Field 1000, length-delimited, "new": what a newer writer may add.
    assert decode_report(encode_report(REPORT) + b"\xc2\x3e\x03new") == REPORT


def test_unknown_is_not_zero() -> None:
    pool = decode_report(encode_report(REPORT)).pools[0]
    assert pool.waiting is None
    assert pool.kv_use_mean is None
    zero = dataclasses.replace(POOL, waiting=0, kv_use_mean=0.0)
    assert decode_report(encode_report(dataclasses.replace(REPORT, pools=(zero,)))).pools == (zero,)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.5])
def test_senseless_measurements_are_unknown_when_read_and_when_written(value: float) -> None:
    read = message()
    read.pools[0].kv_use_max = value
    assert decode_report(read.SerializeToString()).pools[0].kv_use_max is None
    written = dataclasses.replace(REPORT, pools=(dataclasses.replace(POOL, kv_use_max=value),))
    assert decode_report(encode_report(written)) == REPORT


def test_adapter_lists_are_cut_to_the_longest_that_fits() -> None:
    many = tuple(f"adapter-{number:06d}" for number in range(10_000))
    pools = (dataclasses.replace(POOL, resident_adapters=many, waiting_adapters=("one",)), GOLDEN.pools[1])
    encoded = encode_report(dataclasses.replace(REPORT, pools=pools))
    assert MAX_REPORT_BYTES - 32 < len(encoded) <= MAX_REPORT_BYTES
    cut, whole = decode_report(encoded).pools
    assert cut.adapters_truncated
    assert cut.resident_adapters == many[: len(cut.resident_adapters)]
    assert cut.waiting_adapters == ("one",)
    assert whole == pools[1]


def test_pools_that_fit_only_without_adapters_keep_none() -> None:
    pools = tuple(
        dataclasses.replace(
            POOL, model=ModelName(f"{number:04d}" + "m" * 200), resident_adapters=("a" * 200,)
        )
        for number in range(250)
    )
    decoded = decode_report(encode_report(dataclasses.replace(REPORT, pools=pools)))
    assert len(decoded.pools) == 250
    assert all(pool.adapters_truncated and not pool.resident_adapters for pool in decoded.pools)


def test_more_pools_than_fit_are_an_error_of_the_writer() -> None:
    pools = tuple(dataclasses.replace(POOL, model=ModelName(f"model-{n:06d}")) for n in range(4000))
    with pytest.raises(OversizeError, match="4000 pools exceed 65536 bytes"):
        encode_report(dataclasses.replace(REPORT, pools=pools))


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("cluster", "", "cluster ''"),
        ("cluster", "EU_west", "cluster 'EU_west'"),
        ("region", "a b", "region 'a b'"),
        ("jurisdiction", "EU", "jurisdiction 'EU'"),
        ("epoch", 1 << 60, "epoch 1152921504606846976 exceeds"),
        ("sequence", 1 << 60, "sequence 1152921504606846976 exceeds"),
        ("observed_at_ms", -1, "observed_at_ms -1 is negative"),
    ],
)
def test_illegal_values_are_refused_by_name(field: str, value: object, why: str) -> None:
    bad = message()
    setattr(bad, field, value)
    with pytest.raises(UndecodableError, match=why):
        decode_report(bad.SerializeToString())


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("pool", "", "pool ''"),
        ("model", "", "model is missing"),
        ("model", "m" * 257, "model has 257 characters"),
        ("model", "a\nb", "do not print"),
        ("engine", "\x00", "engine '.x00' has characters that do not print"),
        ("ready_endpoints", 5, "5 ready of 4 endpoints"),
    ],
)
def test_illegal_pools_are_refused_by_name(field: str, value: object, why: str) -> None:
    bad = message()
    setattr(bad.pools[0], field, value)
    with pytest.raises(UndecodableError, match=why):
        decode_report(bad.SerializeToString())


def test_two_entries_for_one_pool_and_model_are_refused() -> None:
    with pytest.raises(UndecodableError, match="same pool and model"):
        decode_report(encode_report(dataclasses.replace(REPORT, pools=(POOL, POOL))))


def test_oversized_bytes_are_refused_before_parsing() -> None:
    with pytest.raises(UndecodableError, match="65537 bytes exceed the bound of 65536"):
        decode_report(b"\x00" * (MAX_REPORT_BYTES + 1))

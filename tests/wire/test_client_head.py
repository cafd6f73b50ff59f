"""Reading a client's head: what is taken, what is dropped, what travels on, in one pass as in several."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.inference import TrafficClass
from services.wire.client_head import controls_of, read_head
from services.wire.control_headers import SESSION, STRIPPED_PREFIXES, TRAFFIC_CLASS
from services.wire.http1.heads import forwardable_block

NAMES = (
    b"host",
    b"accept",
    b"accept-encoding",
    b"authorization",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"cookie",
    b"traceparent",
    b"transfer-encoding",
    b"x-request-id",
    b"x-custom",
    b"x-gir-class",
    b"x-gir-session",
    b"x-gir-residency",
    b"x-gir-hand-off",
    b"x-gateway-destination-endpoint",
    b"x-llm-d-anything",
)
VALUES = (b"identity", b"gzip", b"close", b"keep-alive", b"x-custom", b"batch", b"a, b", b"")
pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES))


@given(st.lists(pairs, max_size=8))
def test_one_pass_forwards_what_the_plain_rules_forward(headers: list[tuple[bytes, bytes]]) -> None:
    """The block is `forwardable_block` without decision headers and credentials, plus class and session."""
    stripped = [pair for pair in headers if not pair[0].startswith(STRIPPED_PREFIXES)]
    expected = forwardable_block(stripped, without=frozenset((b"authorization", b"cookie", b"x-request-id")))
    for name in (TRAFFIC_CLASS, SESSION):
        values = [value for key, value in headers if key == name]
        if values:
            expected += b"%b: %b\r\n" % (name, b", ".join(values))
    assert read_head(headers).block == expected


def test_two_credentials_are_no_choice_between_them() -> None:
    head = read_head([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")])
    assert head.authorization == b"Bearer a, Bearer b"
    assert read_head([]).authorization is None


def test_a_coded_body_is_noticed() -> None:
    assert read_head([(b"content-encoding", b"gzip")]).compressed
    assert read_head([(b"content-encoding", b"identity"), (b"content-encoding", b"gzip")]).compressed
    plain = read_head([(b"content-encoding", b"identity")])
    assert not plain.compressed
    assert b"content-encoding: identity\r\n" in plain.block
    assert not read_head([]).compressed


def test_the_controls_come_out_of_the_same_pass() -> None:
    controls = controls_of(read_head([(b"x-gir-class", b"batch"), (b"x-request-id", b"mine")]))
    assert controls.traffic_class is TrafficClass.BATCH
    assert controls.client_request_id == "mine"

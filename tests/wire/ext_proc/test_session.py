"""The stream machine's conversations: the request phase. Those of the response phase are `test_answers`'s."""

import pytest

from services.wire.ext_proc.events import (
    BodyMode,
    Modes,
    StreamRules,
)
from tests.wire.ext_proc.playbook import expect

BUFFERED = Modes(BodyMode.BUFFERED, BodyMode.NONE)
NO_RESPONSES = Modes(BodyMode.FULL_DUPLEX_STREAMED, BodyMode.NONE)


def test_the_head_waits_for_the_whole_body() -> None:
    """Proposal 004, 1.1: the answer to the head is deferred until the body's end was read."""
    expect("""
        >> request-headers :method=POST :path=/v1/completions
        << screen
        >> request-body '{"model":'
        >> request-body '"m"}' end
        << ask '{"model":"m"}'
        >> decide 10.0.0.1:8000
        << request-headers set content-length=13 to 10.0.0.1:8000
        << request-body '{"model":"m"}' end
        >> closed
        << finished 0 cut
    """)


def test_the_primary_comes_first_and_its_fallbacks_in_order() -> None:
    script = """
        >> request-headers :method=GET end
        << ask nothing
        >> decide 10.0.0.2:8000,[::1]:8000,10.0.0.1:8000
        << request-headers to {destination}
    """
    expect(script.format(destination="10.0.0.2:8000,[::1]:8000"), StreamRules(endpoints_max=2))
    expect(script.format(destination="10.0.0.2:8000"))


def test_a_large_body_goes_back_in_pieces_and_only_the_last_ends_it() -> None:
    expect("""
        >> request-headers :method=POST
        << screen
        >> request-body 124001*'x' end
        << ask 124001 bytes
        >> decide a:1
        << request-headers set content-length=124001 to a:1
        << request-body 62000 bytes
        << request-body 62000 bytes
        << request-body 'x' end
    """)


def test_an_empty_body_still_ends() -> None:
    expect("""
        >> request-headers :method=POST
        << screen
        >> request-body '' end
        << ask ''
        >> decide a:1
        << request-headers set content-length=0 to a:1
        << request-body '' end
    """)


def test_trailers_end_a_body_and_follow_it() -> None:
    expect("""
        >> request-headers :method=POST
        << screen
        >> request-body 'x'
        >> request-trailers
        << ask 'x'
        >> decide a:1
        << request-headers set content-length=1 to a:1
        << request-body 'x'
        << request-trailers
    """)


def test_in_buffered_mode_the_decision_rides_on_the_body() -> None:
    expect(
        """
        >> request-headers :method=POST x-gateway-destination-endpoint=6.6.6.6:80
        << screen
        << request-headers
        >> request-body 'x'
        << ask 'x'
        >> decide a:1
        << request-body remove x-gateway-destination-endpoint to a:1
        >> request-trailers
        << request-trailers
        >> closed
        << end
        """,
        modes=BUFFERED,
    )


def test_in_buffered_mode_a_rewritten_body_replaces_the_whole() -> None:
    expect(
        """
        >> request-headers :method=POST
        << screen
        << request-headers
        >> request-body 'x' end
        << ask 'x'
        >> decide a:1 'longer' target client
        << request-body 'longer' set content-length=6 to a:1
        """,
        modes=BUFFERED,
    )


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED, BodyMode.BUFFERED_PARTIAL, BodyMode.GRPC])
def test_a_mode_in_which_no_body_can_be_read_is_said(mode: BodyMode) -> None:
    """Routing without the body would be a guess; a head without body needs none of it."""
    expect(
        """
        >> request-headers :method=POST
        << immediate 500 internal_error
        """,
        modes=Modes(mode, BodyMode.NONE),
    )
    expect(
        """
        >> request-headers :method=GET end
        << ask nothing
        """,
        modes=Modes(mode, BodyMode.NONE),
    )


def test_a_head_of_an_answer_alone_tells_how_the_request_went() -> None:
    expect(
        """
        >> request-headers :method=GET end
        << ask nothing
        >> decide a:1
        << request-headers to a:1
        >> response-headers :status=503
        << begun
        << response-headers set x-went-into-resp-headers=true
        >> closed
        << finished 503 complete
        """,
        modes=NO_RESPONSES,
    )


def test_control_headers_are_stripped_and_others_stay() -> None:
    """No client sets a destination, an objective or where a sidecar connects; `traceparent` travels on."""
    expect("""
        >> request-headers :method=GET X=1 traceparent=00-1 x-gateway-destination-endpoint=6.6.6.6:80 x_gir_class=b x-llm-d-inference-objective=o x-slo-ttft-ms=5 x-prefiller-host-port=h:1 test-epp-endpoint-selection=h end
        << ask nothing
        >> decide a:1
        << request-headers remove x-gateway-destination-endpoint remove x_gir_class remove x-llm-d-inference-objective remove x-slo-ttft-ms remove x-prefiller-host-port remove test-epp-endpoint-selection to a:1
    """)


def test_a_body_over_the_limit_is_413_at_once_and_the_rest_is_drained() -> None:
    expect(
        """
        >> request-headers :method=POST
        << screen
        >> request-body 10*'x'
        >> request-body 'x'
        << immediate 413 request_too_large
        >> request-body 100*'x'
        >> request-trailers
        >> closed
        """,
        StreamRules(body_bytes_max=10),
    )


def test_a_declared_length_over_the_limit_is_413_before_the_body() -> None:
    rules = StreamRules(body_bytes_max=10)
    expect(
        """
        >> request-headers :method=POST content-length=11
        << immediate 413 request_too_large
        """,
        rules,
    )
    expect(
        """
        >> request-headers :method=POST content-length=10
        << screen
        """,
        rules,
    )


def test_a_body_that_never_ends_is_408_at_its_deadline() -> None:
    expect("""
        >> request-headers :method=POST
        << screen
        >> request-body 'x'
        >> after 29
        >> after 1
        << immediate 408 too_slow
        >> request-body 'x' end
        # A data plane that keeps a refused stream open is left.
        >> after 30
        << end
        >> after 30
    """)


def test_a_body_that_has_ended_is_never_late() -> None:
    expect("""
        >> request-headers :method=POST
        << screen
        >> request-body 'x' end
        << ask 'x'
        >> after 3600
        >> decide a:1
        << request-headers set content-length=1 to a:1
        << request-body 'x' end
    """)


def test_a_head_may_be_refused_before_its_body() -> None:
    expect("""
        >> request-headers :method=POST
        << screen
        >> refuse drained
        << immediate 503 drained
        >> request-body 'x' end
        >> refuse drained
        >> decide a:1
    """)


def test_a_decision_after_the_stream_has_ended_says_nothing() -> None:
    expect("""
        >> request-headers :method=GET end
        << ask nothing
        >> closed
        >> decide a:1
        >> request-body 'x'
    """)


def test_a_picked_request_may_be_refused_until_its_answer_begins() -> None:
    """Eviction: the client gets a 429 in the model server's place, and none once bytes of an answer went on."""
    expect(
        """
        >> request-headers :method=GET end
        << ask nothing
        >> decide a:1
        << request-headers to a:1
        >> refuse evicted
        << immediate 429 evicted
        """,
        modes=NO_RESPONSES,
    )
    expect(
        """
        >> request-headers :method=GET end
        << ask nothing
        >> decide a:1
        << request-headers to a:1
        >> response-headers :status=200
        << begun
        << response-headers set x-went-into-resp-headers=true
        >> refuse evicted
        """,
        modes=NO_RESPONSES,
    )


def test_parts_out_of_order_are_an_error_of_the_gateway() -> None:
    expect("""
        >> request-body 'x' end
        << immediate 500 internal_error
    """)
    expect("""
        >> request-headers :method=POST
        << screen
        >> request-headers :method=POST
        << immediate 500 internal_error
    """)
    expect("""
        >> response-headers :status=200
        << immediate 500 internal_error
    """)


def test_an_answer_that_comes_before_the_decision_passes() -> None:
    """Another filter may answer in between; the picker has nothing to say to it."""
    expect(
        """
        >> request-headers :method=POST
        << screen
        >> response-headers :status=413 end
        << begun
        << response-headers set x-went-into-resp-headers=true
        << finished 413 complete
        << end
        """
    )


def test_a_subset_hint_reaches_the_decision() -> None:
    expect("""
        >> request-headers :method=GET subset=10.0.0.1,10.0.0.2:8000 end
        << ask nothing among 10.0.0.1,10.0.0.2:8000
    """)
    expect("""
        >> request-headers :method=GET subset= end
        << ask nothing among nobody
    """)


@pytest.mark.parametrize("conformance", [True, False])
def test_the_conformance_header_narrows_only_where_a_setting_says_so(conformance: bool) -> None:
    """It then comes before the metadata hint; elsewhere a client's word counts for nothing."""
    among = "10.0.0.9" if conformance else "10.0.0.1"
    expect(
        f"""
        >> request-headers :method=GET subset=10.0.0.1 test-epp-endpoint-selection=10.0.0.9 end
        << ask nothing among {among}
        """,
        StreamRules(conformance=conformance),
    )

"""Field cases of the category lora-model-names, where a picker decides them: the table of names and its bodies."""

import json

import pytest

from services.core.inference import ModelName
from services.core.models.routing import (
    LearnedAdapter,
    ModelFault,
    ModelTable,
    PoolModels,
    ResolvedModel,
    ServedModel,
)
from services.core.outcomes import DropReason
from services.wire.model_headers import model_headers
from services.wire.openai.errors import error_body
from services.wire.openai.requests import read_body
from services.wire.openai.rewrite import with_model
from services.wire.status import STATUS
from tests.endpoint_picker.doors.test_ext_proc import asked, error

POOL = PoolModels("llama", (ServedModel(ModelName("llama-8b"), (ModelName("assistant"),)),))
TABLE = ModelTable([POOL])


def test_f028_an_unknown_model_is_found_to_be_none_and_says_so_in_openais_words() -> None:
    """404 model_not_found; a path nobody serves has another code (tests/field/test_request_body.py)."""
    assert TABLE.resolve(read_body(b'{"model":"no-such"}').model, "r") is ModelFault.NOT_FOUND
    row = STATUS[DropReason.MODEL_NOT_FOUND]
    assert (row.http, row.code) == (404, "model_not_found")
    assert b'"model_not_found"' in error_body(row, "The model 'no-such' does not exist.", "model")


def test_f029_an_adapter_that_a_pod_reports_is_routed_to_its_pool() -> None:
    """Known from the pods alone; 404 only when no pod lists it."""
    assert TABLE.resolve("sql-lora", "r") is ModelFault.NOT_FOUND
    learned = ModelTable([POOL], learned=[LearnedAdapter("llama", ModelName("sql-lora"))])
    resolved = learned.resolve("sql-lora", "r")
    assert isinstance(resolved, ResolvedModel)
    assert (resolved.pool, resolved.adapter) == ("llama", "sql-lora")
    assert model_headers(resolved) == (
        (b"x-gateway-model-name", b"sql-lora"),
        (b"x-gateway-base-model-name", b"llama-8b"),
    )


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (b" llama-8b ", ModelFault.MALFORMED),
        (b"llama-8b\\u0000", ModelFault.MALFORMED),
        (b"llama-8b\\r\\nx-evil: 1", ModelFault.MALFORMED),
        (b"LLAMA-8B", ModelFault.NOT_FOUND),
    ],
)
def test_f031_a_padded_or_cased_name_is_never_taken_for_the_name(written: bytes, fault: ModelFault) -> None:
    """Padding and control characters are malformed (400), another case is another name (404); nothing is repaired."""
    body = b'{"model":"%b"}' % written
    assert TABLE.resolve(read_body(body).model, "r") is fault


def test_f031_the_name_that_was_resolved_is_the_name_in_the_forwarded_body() -> None:
    """The server reads the target that was authorised, however the client spelt its alias."""
    body = b'{"model":"assist\\u0061nt","messages":[]}'
    resolved = TABLE.resolve(read_body(body).model, "r")
    assert isinstance(resolved, ResolvedModel)
    assert with_model(body, resolved.target_model) == b'{"model":"llama-8b","messages":[]}'


async def test_f031_both_doors_refuse_what_can_be_no_name() -> None:
    """400 that names the parameter, over HTTP as over ext_proc; another case is another name (404)."""
    async with asked(1) as (cluster, plane):
        for name in (r" llama", r"llama\u0000", r"llama\r\nx-evil: 1", r"\u007f", r"llama\u2028"):
            body = b'{"model":"%b"}' % name.encode()
            over_http = await cluster.client.post("/v1/chat/completions", content=body)
            over_ext_proc = await plane.ask(body)
            assert (over_http.status_code, over_ext_proc.status) == (400, 400)
            for said in (over_http.json()["error"], json.loads(over_ext_proc.body)["error"]):
                assert (said["type"], said["param"]) == ("invalid_request_error", "model")
        assert error(await plane.ask(b'{"model":"LLAMA"}')) == (404, "model_not_found")
        assert cluster.picker.doors.http.life.running == 0

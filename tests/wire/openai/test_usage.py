"""Usage objects: every API's names, and nothing that is no count."""

import pytest

from services.wire.openai.usage import NO_USAGE, Usage, read_usage


@pytest.mark.parametrize(
    ("data", "usage"),
    [
        (b'{"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}', Usage(9, 3)),
        (b'{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}', Usage(9, None, 4)),
        (b'{"input_tokens":9,"output_tokens":1,"input_tokens_details":{"cached_tokens":0}}', Usage(9, 1, 0)),
        (b'{"prompt_tokens": 9, "prompt_tokens_details": null}', Usage(9)),
        (b'{"prompt_tokens": -1, "completion_tokens": 1.5}', NO_USAGE),
        (b'{"prompt_tokens": "9", "completion_tokens": true}', NO_USAGE),
        (b'{"prompt_tokens": 99999999999999999999}', NO_USAGE),
        (b"[]", NO_USAGE),
        (b"{", NO_USAGE),
        (None, NO_USAGE),
    ],
)
def test_usage_is_read_or_unknown(data: bytes | None, usage: Usage) -> None:
    assert read_usage(data) == usage

"""The exposition reader: syntax by the format's own rules, the field's cases by id, and properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.adapters.model_server import exposition
from services.adapters.model_server.exposition import Sample, Selection

WAITING = "vllm:num_requests_waiting"
KV = "vllm:kv_cache_usage_perc"


def read(page: str | bytes, *names: str) -> list[Sample]:
    body = page.encode() if isinstance(page, str) else page
    return list(Selection("vllm:", names or (WAITING, KV)).samples(body))


def test_f007_braces_commas_and_a_trailing_backslash_in_labels_are_text() -> None:
    page = (
        'vllm:num_requests_waiting{model_name="org/{a, b}",path="F:\\\\",engine="0"} 3\n'
        'vllm:num_requests_waiting{model_name="two\\nlines \\"quoted\\"",engine="1"} 4\n'
        "vllm:kv_cache_usage_perc 0.5\n"
    )
    assert read(page) == [
        Sample(WAITING, {"model_name": "org/{a, b}", "path": "F:\\", "engine": "0"}, 3.0),
        Sample(WAITING, {"model_name": 'two\nlines "quoted"', "engine": "1"}, 4.0),
        Sample(KV, {}, 0.5),
    ]


def test_f008_exponents_escaped_quotes_and_special_values() -> None:
    page = (
        'vllm:num_requests_waiting{model_name="a\\"b"} 1.2e+01\n'
        "vllm:kv_cache_usage_perc 9.7E-1\n"
        "vllm:kv_cache_usage_perc +Inf\n"
        "vllm:kv_cache_usage_perc -Inf\n"
        "vllm:kv_cache_usage_perc NaN\n"
    )
    waiting, *kv = read(page)
    assert waiting == Sample(WAITING, {"model_name": 'a"b'}, 12.0)
    assert [sample.value for sample in kv[:3]] == [0.97, math.inf, -math.inf]
    assert math.isnan(kv[3].value)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("vllm:num_requests_waiting 3", 3.0),
        ("vllm:num_requests_waiting 3 1712345678000", 3.0),
        ("vllm:num_requests_waiting\t3\t-5", 3.0),
        ("  vllm:num_requests_waiting 3  ", 3.0),
        ("vllm:num_requests_waiting {} 3", 3.0),
        ('vllm:num_requests_waiting { a = "b" , } 3', 3.0),
        ('vllm:num_requests_waiting{a="b"}3', 3.0),
        ("vllm:num_requests_waiting -.5", -0.5),
        ('vllm:num_requests_waiting{a="b"} 3 # {trace_id="}"} 1.0', 3.0),
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_every_legal_spelling_of_a_line_is_read(line: str, value: float, end: str) -> None:
    assert [sample.value for sample in read(line + end)] == [value]


@pytest.mark.parametrize(
    "line",
    [
        "# HELP vllm:num_requests_waiting Number of requests waiting.",
        "# vllm:num_requests_waiting 3",
        "x_vllm:num_requests_waiting 3",
        "vllm:num_requests_waiting_total 3",
        "vllm:num_requests_waiting:rate 3",
        "vllm:num_requests_waiting",
        "vllm:num_requests_waiting3",
        "vllm:num_requests_waiting{} ",
        "vllm:num_requests_waiting abc",
        "vllm:num_requests_waiting 1_0",
        "vllm:num_requests_waiting 1.2.3",
        "vllm:num_requests_waiting 0x10",
        'vllm:num_requests_waiting{a="b} 3',
        'vllm:num_requests_waiting{a="b"',
        "vllm:num_requests_waiting{a=b} 3",
        'vllm:num_requests_waiting{a="b" c="d"} 3',
        'vllm:num_requests_waiting{a="b"} 3 4 5',
    ],
)
def test_what_is_not_a_sample_of_the_name_is_skipped_and_leaves_the_others_alone(line: str) -> None:
    page = f"vllm:kv_cache_usage_perc 0.1\n{line}\nvllm:kv_cache_usage_perc 0.2\n"
    assert [sample.value for sample in read(page)] == [0.1, 0.2]


@pytest.mark.parametrize("odd", ["1_0", "1.2.3", "3 4 5", "", "3x"])
def test_a_known_label_block_does_not_excuse_a_broken_value(odd: str) -> None:
    selection = Selection("vllm:", [WAITING])
    assert [s.value for s in selection.samples(b'vllm:num_requests_waiting{a="b"} 7\n')] == [7.0]
    assert list(selection.samples(f'vllm:num_requests_waiting{{a="b"}} {odd}\n'.encode())) == []


def test_a_known_label_block_is_read_with_a_timestamp_and_at_the_end_of_the_page() -> None:
    selection = Selection("vllm:", [WAITING])
    for page in (b'vllm:num_requests_waiting{a="}"} 12 99', b'vllm:num_requests_waiting{a="}"} 12'):
        for _ in range(2):
            assert list(selection.samples(page)) == [Sample(WAITING, {"a": "}"}, 12.0)]


def test_invalid_utf8_in_a_label_does_not_lose_the_sample() -> None:
    assert read(b'vllm:num_requests_waiting{a="\xff"} 1\n') == [Sample(WAITING, {"a": "�"}, 1.0)]


def test_an_unknown_escape_is_kept_as_written() -> None:
    assert read(r'vllm:num_requests_waiting{a="\d"} 1') == [Sample(WAITING, {"a": r"\d"}, 1.0)]


def test_known_label_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "MAX_KNOWN_LABEL_SETS", 10)
    selection = Selection("vllm:", [WAITING])
    for number in range(100):
        page = f'vllm:num_requests_waiting{{a="{number}"}} {number}\n'.encode()
        assert list(selection.samples(page)) == [Sample(WAITING, {"a": str(number)}, float(number))]
    assert len(selection._known_labels) <= 10


label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.floats(allow_nan=False) | st.integers(-(10**6), 10**6)
series = st.tuples(
    st.sampled_from((WAITING, KV)),
    st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), label_values, max_size=4),
    values,
)


def render(name: str, labels: dict[str, str], value: float) -> str:
    def escape(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    block = ",".join(f'{key}="{escape(text)}"' for key, text in labels.items())
    return f"{name}{{{block}}} {value!r}" if labels else f"{name} {value!r}"


@given(st.lists(series, max_size=12))
def test_reading_undoes_writing(written: list[tuple[str, dict[str, str], float]]) -> None:
    """Invariant: every written sample is read back exactly, on a first and on a repeated reading."""
    page = "\n".join(render(*sample) for sample in written).encode()
    selection = Selection("vllm:", (WAITING, KV))
    expected = [Sample(name, labels, float(value)) for name, labels, value in written]
    assert list(selection.samples(page)) == expected
    assert list(selection.samples(page)) == expected


@given(
    st.lists(series, max_size=8),
    st.lists(st.text(alphabet='{}",=\\ #:_vlm1', max_size=30), max_size=8),
    st.data(),
)
def test_order_of_lines_and_foreign_lines_mean_nothing(
    written: list[tuple[str, dict[str, str], float]], noise: list[str], data: st.DataObject
) -> None:
    """Invariant: any permutation of the lines, with any junk lines between, yields the same multiset of samples."""
    lines = [render(*sample) for sample in written] + noise
    shuffled = data.draw(st.permutations(lines))
    assert sorted(map(repr, read("\n".join(shuffled)))) == sorted(map(repr, read("\n".join(lines))))


def test_hostile_lines_take_linear_work() -> None:
    """A 2 MiB line of quotes, braces and backslashes ends in no match instead of in backtracking."""
    junk = '\\"{},= a""{{\\' * (1 << 17)
    page = f"vllm:num_requests_waiting{{{junk}\nvllm:kv_cache_usage_perc 0.5\n"
    assert read(page)[-1] == Sample(KV, {}, 0.5)


def test_f010_label_blocks_are_bounded_in_labels_and_long_ones_are_not_kept() -> None:
    """What one hostile page costs is bounded, and nothing of it stays behind."""
    most = ",".join(f'a{number}="x"' for number in range(exposition.MAX_LABELS))
    selection = Selection("vllm:", (WAITING,))
    long = f'vllm:num_requests_waiting{{a="{"x" * exposition.MAX_KNOWN_BLOCK_BYTES}"}} 1\n'.encode()
    assert [sample.value for sample in selection.samples(long)] == [1.0]
    assert not selection._known_labels
    assert len(read(f"vllm:num_requests_waiting{{{most}}} 1\n")[0].labels) == exposition.MAX_LABELS
    assert read(f'vllm:num_requests_waiting{{{most},b="x"}} 1\nvllm:kv_cache_usage_perc 0.5\n') == [
        Sample(KV, {}, 0.5)
    ]

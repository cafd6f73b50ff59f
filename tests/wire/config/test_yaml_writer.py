from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from services.wire.config.yaml_reader import read_yaml
from services.wire.config.yaml_writer import write_yaml

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn")), max_size=20)
plain = st.recursive(
    st.one_of(st.booleans(), st.integers(-(10**9), 10**9), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(texts, plain, min_size=1, max_size=3), min_size=1, max_size=3))
def test_what_is_written_reads_the_same_by_both_versions_of_yaml(documents: list[dict[str, Any]]) -> None:
    """Invariant: our reader (YAML 1.2) and PyYAML's own (1.1) both read back the values that were written."""
    text = write_yaml(documents)
    assert read_yaml(text.encode()) == documents
    assert list(yaml.safe_load_all(text)) == documents


@pytest.mark.parametrize(
    "text", ["no", "on", "y", "N", "1e3", "0o14", "1:30", "2020-01-01", "~", "null", ".inf", ""]
)
def test_a_text_that_looks_like_another_type_is_quoted(text: str) -> None:
    written = write_yaml([{"a": text}])
    assert f'"{text}"' in written or f"'{text}'" in written
    assert read_yaml(written.encode()) == [{"a": text}]


def test_order_is_kept_and_nothing_is_an_anchor() -> None:
    same = ["x"]
    assert write_yaml([{"b": same, "a": same}, {"c": "z" * 300}]) == (
        "---\nb:\n- x\na:\n- x\n---\nc: " + "z" * 300 + "\n"
    )

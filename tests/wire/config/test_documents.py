import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire.config.documents import KINDS, Documents, Source, read_documents
from services.wire.config.problems import Problem, Severity
from tests.wire.config import example

HEAD = "apiVersion: gir.dev/v1alpha1\n"


def read(*texts: str) -> Documents:
    return read_documents([Source(f"f{i}.yaml", text.encode()) for i, text in enumerate(texts)], ())


def lines(*texts: str) -> list[str]:
    return [str(problem) for problem in read(*texts).problems]


def test_documents_are_sorted_by_kind_and_know_their_place() -> None:
    documents = read(example.EVERYTHING, example.TENANT.replace("acme", "other"))
    assert documents.problems == ()
    assert [tenant.value.metadata.name for tenant in documents.tenants] == ["acme", "other"]
    assert [str(tenant) for tenant in documents.tenants] == ["f0.yaml#3", "f1.yaml"]
    for found in (documents.fleets, documents.routing_policies, documents.token_keys, documents.sites):
        assert len(found) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "f0.yaml: (document): (empty): holds no document"),
        ("---\n---\n", "f0.yaml: (document): (empty): holds no document"),
        ("foo", "f0.yaml: (document): 'foo': must be a mapping with apiVersion, kind, metadata and spec"),
        ("kind: Fleet", "f0.yaml: apiVersion: null: must be gir.dev/v1alpha1"),
        ("apiVersion: v1", "f0.yaml: apiVersion: 'v1': must be gir.dev/v1alpha1"),
        (HEAD, f"f0.yaml: kind: null: must be one of {', '.join(KINDS)}"),
        (HEAD + "kind: [Fleet]", f"f0.yaml: kind: a list of 1: must be one of {', '.join(KINDS)}"),
        (HEAD + "kind: Flet", f"f0.yaml: kind: 'Flet': must be one of {', '.join(KINDS)}"),
        ("a: [", "f0.yaml: line 2 column 1: '': not YAML: did not find expected node content"),
        ("a: 1\n---\nb: 1\nb: 2", "f0.yaml: line 4 column 1: 'b: 2': key 'b' is given twice"),
    ],
)
def test_each_fault_is_one_line(text: str, line: str) -> None:
    assert lines(text) == [line]


def test_faults_are_named_by_path_value_and_rule() -> None:
    text = HEAD + (
        "kind: Fleet\nmetadata: {}\nspec:\n  clusters:\n"
        "  - {id: a, region: r, jurisdiction: EU, gatewayUrl: http://x, foo: 1}\n"
        "  - {id: 7, region: r, jurisdiction: eu}\n  models: {}\n"
    )
    assert lines(text) == [
        "f0.yaml: metadata.name: (missing): is required",
        (
            "f0.yaml: spec.clusters[0].jurisdiction: 'EU': must be a jurisdiction code: "
            "2 to 32 characters of a-z, 0-9 and '-'"
        ),
        "f0.yaml: spec.clusters[0].foo: 1: is not a field of this kind",
        "f0.yaml: spec.clusters[1].id: 7: must be text",
        "f0.yaml: spec.clusters[1].gatewayUrl: (missing): is required",
        "f0.yaml: spec.models: a mapping of 0: must be a list",
    ]


def test_one_bad_document_does_not_hide_the_others() -> None:
    documents = read("foo: 1\n---\n" + example.FLEET, "a: [", example.TENANT)
    assert [problem.file for problem in documents.errors] == ["f0.yaml", "f1.yaml"]
    assert len(documents.fleets) == len(documents.tenants) == 1
    assert documents.fleets[0].document == 1


def test_checks_see_all_documents_and_warnings_are_not_errors() -> None:
    warning = Problem("f", 0, "p", "v", "r", Severity.WARNING)
    error = Problem("f", 0, "p", "v", "r")
    source = Source("f", example.FLEET.encode())
    documents = read_documents([source], [lambda found: [warning, error] if found.fleets else []])
    assert documents.errors == (error,)
    assert documents.warnings == (warning,)


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(kind=st.sampled_from(sorted(KINDS)), spec=trees, metadata=trees)
def test_any_spec_is_read_or_refused(kind: str, spec: object, metadata: object) -> None:
    """Invariant: whatever stands in a document, loading ends with documents or problems, never an exception."""
    import json

    tree = {"apiVersion": "gir.dev/v1alpha1", "kind": kind, "spec": spec, "metadata": metadata}
    documents = read(json.dumps(tree))
    assert documents.problems
    assert all("\n" not in str(problem) for problem in documents.problems)

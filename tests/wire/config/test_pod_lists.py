import pytest

from services.wire.config.documents import Source
from services.wire.config.gateway_checks import PodLabels
from services.wire.config.pod_lists import PodListError, read_pods

LIST = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: models, labels: {app: x}}, spec: {containers: []}}
- {kind: Pod, metadata: {name: b}}
"""


def read(text: str) -> tuple[PodLabels, ...]:
    return read_pods(Source("pods.yaml", text.encode()))


def test_lists_and_single_pods_are_read() -> None:
    both = (PodLabels("models", "a", {"app": "x"}), PodLabels("default", "b", {}))
    assert read(LIST) == read(LIST.replace("List", "PodList").replace("kind: Pod, ", "")) == both
    assert read("kind: Pod\nmetadata: {name: a}\n---\n---\nkind: Pod\nmetadata: {name: b, labels: null}") == (
        PodLabels("default", "a", {}),
        PodLabels("default", "b", {}),
    )
    assert read("kind: List\nitems: []") == read("") == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "pods.yaml: line 2 column 1: (text): not YAML: did not find expected node content"),
        ("kind: Service", "pods.yaml: (document): a mapping of 1: must be a Pod with its metadata"),
        ("kind: Pod", "pods.yaml: (document): a mapping of 1: must be a Pod with its metadata"),
        ("kind: [List]", "pods.yaml: (document): a mapping of 1: must be a Pod with its metadata"),
        ("- a", "pods.yaml: (document): a list of 1: must be a Pod with its metadata"),
        ("kind: List", "pods.yaml: items[0]: null: must be a Pod with its metadata"),
        ("kind: List\nitems: [7]", "pods.yaml: items[0]: 7: must be a Pod with its metadata"),
        (
            "kind: List\nitems: [{kind: Service, metadata: {}}]",
            "pods.yaml: items[0]: a mapping of 2: must be a Pod with its metadata",
        ),
        ("kind: Pod\nmetadata: {labels: []}", ""),
        (
            "kind: Pod\nmetadata: {labels: [a]}",
            "pods.yaml: (document): a mapping of 2: must be a Pod with its metadata",
        ),
    ],
)
def test_what_is_no_pod_is_refused(text: str, line: str) -> None:
    if not line:
        assert read(text) == (PodLabels("default", "", {}),)
        return
    with pytest.raises(PodListError) as refused:
        read(text)
    assert str(refused.value.problem) == line

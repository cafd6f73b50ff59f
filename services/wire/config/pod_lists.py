"""Pods as `kubectl get pods -o yaml` prints them -> what selectors are held against.

Only names and labels are read: a file of somebody's cluster holds much else that is nobody's
business here.
"""

from collections.abc import Iterator
from typing import Any

from services.wire.config.documents import Source
from services.wire.config.gateway_checks import PodLabels
from services.wire.config.problems import Problem, value_text
from services.wire.config.yaml_reader import YamlError, read_yaml


class PodListError(ValueError):
    """The file lists no pods that can be read; `problem` says where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_pods(source: Source) -> tuple[PodLabels, ...]:
    """Return the pods of a `List`, a `PodList` or of `Pod` documents; raises `PodListError`."""
    try:
        trees = read_yaml(source.data)
    except YamlError as error:
        place = f"line {error.line} column {error.column}"
        raise PodListError(Problem(source.name, 0, place, "(text)", error.rule)) from None
    return tuple(
        _pod(source.name, document, path, tree)
        for document, whole in enumerate(trees)
        for path, tree in _items(whole)
    )


def _items(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and str(tree.get("kind")) in {"List", "PodList"}:
        items = tree.get("items")
        for i, item in enumerate(items if isinstance(items, list) else [items]):
            # Items of a typed list carry no kind of their own.
            yield f"items[{i}]", {"kind": "Pod", **item} if isinstance(item, dict) else item
    elif tree is not None:
        yield "(document)", tree


def _pod(file: str, document: int, path: str, tree: Any) -> PodLabels:
    metadata = tree.get("metadata") if isinstance(tree, dict) and tree.get("kind") == "Pod" else None
    labels = (metadata.get("labels") or {}) if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(labels, dict):
        raise PodListError(Problem(file, document, path, value_text(tree), "must be a Pod with its metadata"))
    return PodLabels(str(metadata.get("namespace", "default")), str(metadata.get("name", "")), labels)

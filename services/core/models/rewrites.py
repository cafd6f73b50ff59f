"""Rewrites: which model serves a request of a given name, by weight. Canaries and splits.

The rules of the Gateway API Inference Extension's `InferenceModelRewrite` (llm-d.ai/v1alpha2): a
match of the name goes before a rule without matches, then the oldest rewrite, then the first
rule. A share is drawn from the request's id, so that a decision can be replayed. Which pool a name
belongs to is `routing`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.core.inference import ModelName
from services.core.scheduling.draws import DrawTable, words


@dataclass(frozen=True, slots=True)
class Target:
    """A model that takes a share of a rule's requests. `weight` is 0 where none is given."""

    model: ModelName
    weight: int = 0


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """Requests for any of `matches` (none: for any model) go to `targets`; without targets they stay as they are."""

    matches: tuple[ModelName, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Rules of one pool in order. `created_at_ms` is wall time; of rewrites equally old the first by name counts."""

    name: str
    pool: str
    created_at_ms: int
    rules: tuple[RewriteRule, ...]


class Split:
    """A rule's targets as a table to draw from.

    Weights are proportional. Where only some targets have one, the others are never chosen; where
    none has, all are equally likely.
    """

    __slots__ = ("_name", "_table", "models")

    def __init__(self, name: str, targets: Sequence[Target]) -> None:
        weighted = any(target.weight > 0 for target in targets)
        shares: dict[ModelName, int] = {}
        for target in targets:
            share = target.weight if weighted else 1
            if share > 0:
                shares[target.model] = shares.get(target.model, 0) + share
        self._name = name
        self._table = DrawTable(list(shares.items()))
        self.models = tuple(shares)

    def share(self, model: ModelName) -> float:
        """Return the share (0..1) of a model."""
        return self._table.share(model)

    def draw(self, draw_by: str) -> ModelName:
        """Return the model for a request id, or for a session id where a session must stay with one.

        The rewrite's name is part of what is hashed: a second rewrite, and the choice of a pod by the
        same id, must not follow from this draw.
        """
        if len(self.models) == 1:
            return self.models[0]
        return ModelName(self._table.draw(words(f"{self._name}\n{draw_by}")[0]))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rule that applies to a name: the rewrite's name, and its targets or None to leave the model alone."""

    rewrite: str
    split: Split | None


class PoolRewrites:
    """The rewrites of one pool, merged by precedence."""

    __slots__ = ("exact", "generic")

    def __init__(self, rewrites: Iterable[Rewrite]) -> None:
        self.exact: dict[ModelName, Chosen] = {}
        self.generic: Chosen | None = None
        for rewrite in sorted(rewrites, key=lambda each: (each.created_at_ms, each.name)):
            for rule in rewrite.rules:
                chosen = Chosen(rewrite.name, Split(rewrite.name, rule.targets) if rule.targets else None)
                for model in rule.matches:
                    self.exact.setdefault(model, chosen)
                if not rule.matches and self.generic is None:
                    self.generic = chosen

    def applying_to(self, *names: ModelName) -> Chosen | None:
        """Return the rule for the first of `names` that one matches, else the rule for any model."""
        for name in names:
            chosen = self.exact.get(name)
            if chosen is not None:
                return chosen
        return self.generic

"""Body-based routing: the model name of a request -> its pool, target model, base model and adapter.

`ModelTable` is prepared once per change of configuration, rewrites or learned adapters; a request
then costs a look-up, and a draw where a rewrite splits traffic. Bodies, headers and trust in
headers are not here: names come in as text that the caller has read and may believe.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.core.inference import ModelName
from services.core.models.names import is_model_name
from services.core.models.rewrites import Chosen, PoolRewrites, Rewrite
from services.core.values import value

MAX_LEARNED_ADAPTERS = 10_000
"""Adapters that pods report are not configuration; a pod that reports without end must not fill memory."""


class ModelFault(enum.Enum):
    """Why a name leads nowhere: 400 for what can be no name, 404 for a name that nothing serves."""

    MALFORMED = "malformed"
    NOT_FOUND = "not_found"


@value
class ResolvedModel:
    """Where a request goes and under which names.

    `client_model` is what the client wrote and reads in the answer, `target_model` what the model server
    is asked for, `base_model` the weights it runs on, `adapter` the LoRA adapter on top of them, if any.
    `rewrite_name` is the rewrite that chose the target, empty without one.
    """

    pool: str
    client_model: ModelName
    target_model: ModelName
    base_model: ModelName
    adapter: ModelName | None = None
    rewrite_name: str = ""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A base model of a pool, other names that mean it, and the LoRA adapters that are asked for by name."""

    name: ModelName
    aliases: tuple[ModelName, ...] = ()
    adapters: tuple[ModelName, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolModels:
    """The models a pool is declared to serve."""

    pool: str
    models: tuple[ServedModel, ...]


@dataclass(frozen=True, slots=True)
class LearnedAdapter:
    """An adapter that a pod of the pool reports as running, waiting or served. `base` is None where it does not say."""

    pool: str
    name: ModelName
    base: ModelName | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What a name means in one pool: the model a server is asked for, its base, and whether it is an adapter."""

    target: ModelName
    base: ModelName
    adapter: ModelName | None


class _Pool:
    """One pool's names and rewrites."""

    __slots__ = ("bases", "known", "name", "rewrites")

    def __init__(self, declared: PoolModels, rewrites: Iterable[Rewrite]) -> None:
        self.name = declared.pool
        self.bases = tuple(model.name for model in declared.models)
        self.known: dict[ModelName, _Known] = {}
        self.rewrites = PoolRewrites(rewrites)
        for model in declared.models:
            self.known.setdefault(model.name, _Known(model.name, model.name, None))
        for model in declared.models:
            for alias in model.aliases:
                self.known.setdefault(alias, _Known(model.name, model.name, None))
            for adapter in model.adapters:
                self.known.setdefault(adapter, _Known(adapter, model.name, adapter))

    def learn(self, adapter: LearnedAdapter) -> None:
        """Add an adapter; a base that is no name of this pool says nothing that could be routed by."""
        said = None if adapter.base is None else self.known.get(adapter.base)
        base = self.names(adapter.name).base if said is None else said.base
        self.known.setdefault(adapter.name, _Known(adapter.name, base, adapter.name))

    def names(self, target: ModelName) -> _Known:
        """Return what `target` means here. A name nobody declared runs on the pool's base model where it has one."""
        known = self.known.get(target)
        if known is not None:
            return known
        return _Known(target, self.bases[0] if len(self.bases) == 1 else target, None)

    def resolved(self, client: ModelName, target: ModelName, rewrite: str) -> ResolvedModel:
        known = self.names(target)
        return ResolvedModel(self.name, client, known.target, known.base, known.adapter, rewrite)


class _Entry:
    """The prepared answer for one name: a value, or a split and the value of each of its targets."""

    __slots__ = ("_by_target", "_fixed", "_split")

    def __init__(self, pool: _Pool, client: ModelName, own: ModelName, chosen: Chosen | None) -> None:
        split = None if chosen is None else chosen.split
        if chosen is None or split is None:
            self._split = None
            self._fixed = pool.resolved(client, own, "")
            return
        self._by_target = {model: pool.resolved(client, model, chosen.rewrite) for model in split.models}
        self._split = split if len(split.models) > 1 else None
        self._fixed = self._by_target[split.models[0]]

    def resolve(self, draw_by: str) -> ResolvedModel:
        split = self._split
        return self._fixed if split is None else self._by_target[split.draw(draw_by)]


class ModelTable:
    """All names of a gateway. Of a name on two pools the pool declared first counts.

    `default_pool` takes the requests whose model nobody knows; without one they are not found. It must be
    one of `pools`. Learned adapters never change what a declared name means.
    """

    __slots__ = ("_default", "_entries", "_home", "_pools")

    def __init__(
        self,
        pools: Sequence[PoolModels],
        rewrites: Iterable[Rewrite] = (),
        learned: Iterable[LearnedAdapter] = (),
        default_pool: str | None = None,
    ) -> None:
        rewrites = tuple(rewrites)
        self._pools = {
            declared.pool: _Pool(declared, [each for each in rewrites if each.pool == declared.pool])
            for declared in pools
        }
        if default_pool is not None and default_pool not in self._pools:
            raise ValueError(f"default_pool {default_pool!r} is none of the pools")
        self._default = None if default_pool is None else self._pools[default_pool]
        self._home: dict[ModelName, _Pool] = {}
        for pool in self._pools.values():
            for name in pool.known:
                self._home.setdefault(name, pool)
        self._learn(learned)
        self._entries: dict[str, _Entry] = {}
        for name, pool in self._home.items():
            target = pool.known[name].target
            self._entries[name] = _Entry(pool, name, target, pool.rewrites.applying_to(name, target))
        self._add_rewritten(rewrites)

    def resolve(self, model: str, draw_by: str, rewrite_to: str | None = None) -> ResolvedModel | ModelFault:
        """Return where a request for `model` goes.

        `draw_by` is the request id, or the session id where a session must stay with one target.
        `rewrite_to` is a target that a trusted sender named; it goes before every rewrite.
        """
        if rewrite_to is not None:
            return self._sent_to(model, rewrite_to)
        entry = self._entries.get(model)
        if entry is not None:
            return entry.resolve(draw_by)
        if not is_model_name(model):
            return ModelFault.MALFORMED
        if self._default is None:
            return ModelFault.NOT_FOUND
        name = ModelName(model)
        return _Entry(self._default, name, name, self._default.rewrites.generic).resolve(draw_by)

    def names(self) -> tuple[ModelName, ...]:
        """Return every name that finds a pool by itself, declared ones first, for `/v1/models`."""
        return tuple(ModelName(name) for name in self._entries)

    def _learn(self, learned: Iterable[LearnedAdapter]) -> None:
        """Add adapters in an order of their own: pods report in any, and of two bases one must always win."""
        order = {name: place for place, name in enumerate(self._pools)}
        usable = {
            (order[each.pool], each.name, each.base is None, each.base or ""): each
            for each in learned
            if each.pool in order and each.name not in self._home and is_model_name(each.name)
        }
        for _, adapter in sorted(usable.items())[:MAX_LEARNED_ADAPTERS]:
            pool = self._pools[adapter.pool]
            pool.learn(adapter)
            self._home.setdefault(adapter.name, pool)

    def _add_rewritten(self, rewrites: Iterable[Rewrite]) -> None:
        """Give a name that only a rewrite knows the pool of that rewrite, the oldest one's where several match."""
        for rewrite in sorted(rewrites, key=lambda each: (each.created_at_ms, each.name)):
            pool = self._pools.get(rewrite.pool)
            if pool is None:
                continue
            for name in (name for rule in rewrite.rules for name in rule.matches):
                chosen = pool.rewrites.exact[name]
                if name not in self._entries and chosen.split is not None:
                    self._entries[name] = _Entry(pool, name, name, chosen)

    def _sent_to(self, model: str, target: str) -> ResolvedModel | ModelFault:
        if not is_model_name(model) or not is_model_name(target):
            return ModelFault.MALFORMED
        client, wanted = ModelName(model), ModelName(target)
        pool = self._home.get(client)
        if pool is None or wanted not in pool.known:
            pool = self._home.get(wanted) or pool or self._default
        return ModelFault.NOT_FOUND if pool is None else pool.resolved(client, wanted, "")

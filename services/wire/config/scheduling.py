"""`EndpointPickerConfig` of the endpoint-picker field -> a scheduling profile, flow control and prefix source.

Strict: unknown fields, parameters and plugins are refused, each with file, path, value and rule; the rules are
worded as the field's own loader words them, so that its documentation explains ours. What plugins exist is
`scheduling_plugins`; what the documents look like is `scheduling_document`.
"""

from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from services.core.admission.settings import FlowControlSettings
from services.core.scheduling.endpoint_filters import EndpointFilter
from services.core.scheduling.profile import ENDPOINTS, Picker, SchedulingProfile, Weighted, endpoint_profile
from services.core.scheduling.scorers.scorer import Scorer
from services.wire.config.problems import Problem, value_text
from services.wire.config.rules import findings
from services.wire.config.scheduling_document import Document, Plugin, Profile, WeightedReference
from services.wire.config.scheduling_flow import flow_control
from services.wire.config.scheduling_plugins import (
    NOT_DONE,
    PLUGINS,
    Picking,
    PrefixSource,
    Role,
)
from services.wire.config.yaml_reader import YamlError, read_yaml

API_VERSIONS: Final = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
FLOW_CONTROL: Final = "flowControl"
ALWAYS_ON: Final = frozenset({"dataLayer", "prepareDataPlugins"})
"""Gates of older releases for what is always so here."""
DEFAULT_PARSERS: Final = ("openai-parser", "passthrough-parser")
_TRUTH: Final = {"true": True, "false": False}


class PickerConfigError(ValueError):
    """The document is refused; `problems` says why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class PickerConfig:
    """What a configuration asks for. `flow_control` is None where the gate is shut; `prefix` where nothing reads it."""

    profile: SchedulingProfile
    flow_control: FlowControlSettings | None
    prefix: PrefixSource | None
    parsers: tuple[str, ...]


DEFAULT: Final = PickerConfig(ENDPOINTS, None, PrefixSource(precise=False), DEFAULT_PARSERS)


class _RefusedError(Exception):
    """One problem that ends the reading: path, value and rule."""


def read_picker_config(data: bytes, file: str) -> PickerConfig:
    """Return what the document in `data` asks for; raise `PickerConfigError` naming `file`."""
    try:
        document = _decode(data)
        return _Reader(document).config()
    except YamlError as error:
        where = f"line {error.line} column {error.column}"
        rule = f"failed to decode configuration JSON/YAML: {error.rule}"
        raise PickerConfigError((Problem(file, 0, where, "(text)", rule),)) from None
    except ValidationError as error:
        problems = [
            Problem(file, 0, f.path, f.value, f"failed to decode configuration JSON/YAML: {f.rule}")
            for f in findings(error)
        ]
        raise PickerConfigError(tuple(problems)) from None
    except _RefusedError as error:
        path, value, rule = error.args
        raise PickerConfigError((Problem(file, 0, path, value_text(value), rule),)) from None


def _decode(data: bytes) -> Document:
    trees = [tree for tree in read_yaml(data) if tree is not None]
    if len(trees) != 1:
        rule = "failed to decode configuration JSON/YAML: must hold one document"
        raise _RefusedError("(document)", trees, rule)
    tree = trees[0]
    if isinstance(tree, dict) and tree.get("apiVersion") not in API_VERSIONS:
        rule = f"failed to decode configuration JSON/YAML: must be one of {', '.join(API_VERSIONS)}"
        raise _RefusedError("apiVersion", tree.get("apiVersion"), rule)
    return Document.model_validate(tree, by_alias=True, by_name=False)


@dataclass(frozen=True, slots=True)
class Made:
    """A plugin made: its role and its core value. `needs` is the producer it names, if any."""

    role: Role
    value: Any
    needs: str | None = None


class _Reader:
    """Puts a document's plugins together; the first rule broken is the answer."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._plugins: dict[str, Made] = {}

    def config(self) -> PickerConfig:
        document = self._document
        gates = self._gates()
        for place, plugin in enumerate(document.plugins):
            self._make(f"plugins[{place}]", plugin)
        self._check_producers()
        self._check_handlers()
        profile = self._profile()
        parsers = self._parsers()
        self._check_data_layer()
        flow = None
        if gates.get(FLOW_CONTROL):
            try:
                flow = flow_control(document.flow_control, self.find, document.saturation_detector)
            except ValueError as error:
                raise _RefusedError("flowControl", document.flow_control, str(error)) from None
        elif document.flow_control is not None:
            raise _RefusedError("flowControl", "(given)", "needs the feature gate flowControl")
        elif document.saturation_detector is not None:
            self.find("saturationDetector.pluginRef", document.saturation_detector.plugin_ref, Role.DETECTOR)
            raise _RefusedError("saturationDetector", "(given)", "needs the feature gate flowControl")
        return PickerConfig(profile, flow, self._prefix(profile), parsers)

    def _gates(self) -> dict[str, bool]:
        gates: dict[str, bool] = {}
        for place, text in enumerate(self._document.feature_gates):
            gate, equals, value = text.partition("=")
            path = f"featureGates[{place}]"
            if gate != FLOW_CONTROL and gate not in ALWAYS_ON:
                raise _RefusedError(path, text, f"feature gate '{gate}' is unknown or unregistered")
            if equals and value not in _TRUTH:
                rule = f"{value} is not a valid value for the feature gate {gate}"
                raise _RefusedError(path, text, rule)
            gates[gate] = _TRUTH[value] if equals else True
            if gate in ALWAYS_ON and not gates[gate]:
                raise _RefusedError(path, text, f"{gate} is always on here and cannot be shut")
        return gates

    def _make(self, path: str, plugin: Plugin) -> None:
        name = plugin.name or plugin.type
        if not plugin.type:
            raise _RefusedError(path, plugin.name, f"plugin '{plugin.name}' is missing a type")
        if name in self._plugins:
            raise _RefusedError(f"{path}.name", name, f"duplicate plugin name '{name}'")
        if plugin.type in NOT_DONE:
            raise _RefusedError(f"{path}.type", plugin.type, NOT_DONE[plugin.type])
        found = PLUGINS.get(plugin.type)
        if found is None:
            rule = f"plugin type '{plugin.type}' is not registered"
            raise _RefusedError(f"{path}.type", plugin.type, rule)
        where = f"{path}.parameters"
        try:
            parameters = found.parameters.model_validate(plugin.parameters, by_alias=True, by_name=False)
            made = parameters.build()
        except ValidationError as error:
            first = next(findings(error))
            rule = f"failed to decode configuration JSON/YAML: {first.rule}"
            raise _RefusedError(f"{where}.{first.path}", plugin.parameters, rule) from None
        except ValueError as error:
            raise _RefusedError(where, plugin.parameters, str(error)) from None
        needs = getattr(parameters, "prefix_match_info_producer_name", None)
        self._plugins[name] = Made(found.role, made, needs)

    def find(self, path: str, name: str, role: Role) -> Any:
        """Return the value of the plugin `name`, which must be of `role`."""
        made = self._plugins.get(name)
        if role is Role.DETECTOR and not name:
            raise _RefusedError(path, name, "saturation detector plugin reference is empty")
        if made is None:
            rule = f"{role.value} references undefined plugin '{name}'"
            raise _RefusedError(path, name, rule)
        if made.role is not role:
            rules = {
                Role.DETECTOR: f"plugin '{name}' is not a fwkfc.SaturationDetector",
                Role.PARSER: f'the plugin "{name}" is not a parser plugin',
            }
            raise _RefusedError(path, name, rules.get(role, f"plugin '{name}' is not a {role.value}"))
        return made.value

    def _of(self, role: Role) -> list[str]:
        return [name for name, made in self._plugins.items() if made.role is role]

    def _check_producers(self) -> None:
        for name, made in self._plugins.items():
            if made.needs is None:
                continue
            producer = self._plugins.get(made.needs)
            if producer is None or producer.role is not Role.PREFIX:
                rule = f"a plugin has a dependency on the unregistered plugin {made.needs}"
                raise _RefusedError("plugins", name, rule)
        producers = self._of(Role.PREFIX)
        if len(producers) > 1:
            rule = (
                f"prefix matches come from one producer here, not from '{producers[0]}' and '{producers[1]}'"
            )
            raise _RefusedError("plugins", producers[1], rule)

    def _check_handlers(self) -> None:
        handlers = self._of(Role.HANDLER)
        profiles = self._document.scheduling_profiles
        if len(handlers) > 1:
            rule = f"multiple profile handlers found ('{handlers[0]}', '{handlers[1]}'); only one is allowed"
            raise _RefusedError("plugins", handlers[1], rule)
        seen: set[str] = set()
        for place, profile in enumerate(profiles):
            path = f"schedulingProfiles[{place}]"
            if not profile.name:
                raise _RefusedError(path, profile.name, f"{path} is missing a name")
            if profile.name in seen:
                rule = f"{path} has duplicate name '{profile.name}'"
                raise _RefusedError(f"{path}.name", profile.name, rule)
            seen.add(profile.name)
        if len(profiles) > 1:
            rule = (
                "SingleProfileHandler cannot support multiple scheduling profiles"
                if handlers
                else "no profile handler configured"
            )
            raise _RefusedError("schedulingProfiles", profiles, rule)

    def _profile(self) -> SchedulingProfile:
        profiles = self._document.scheduling_profiles
        if profiles:
            return self._assemble(profiles[0])
        # Plugins without a profile are all of the one profile, as in the field; with none it is the default.
        roles = (Role.SCORER, Role.FILTER, Role.PICKER)
        used = [name for name, made in self._plugins.items() if made.role in roles]
        references = tuple(WeightedReference(plugin_ref=name) for name in used)
        return self._assemble(Profile(name="default", plugins=references)) if used else ENDPOINTS

    def _assemble(self, profile: Profile) -> SchedulingProfile:
        where = f"schedulingProfiles[{profile.name}]"
        scorers: list[Weighted] = []
        filters: list[EndpointFilter] = []
        pickings: list[Picking] = []
        for place, reference in enumerate(profile.plugins):
            path = f"{where}.plugins[{place}]"
            name = reference.plugin_ref
            if not name:
                raise _RefusedError(path, name, f"{path} is missing a 'pluginRef'")
            made = self._plugins.get(name)
            if made is None:
                rule = f"{where} references undefined plugin '{name}'"
                raise _RefusedError(f"{path}.pluginRef", name, rule)
            if made.role is Role.SCORER:
                scorers.append(self._weighted(path, made.value, reference.weight))
                continue
            if reference.weight is not None:
                raise _RefusedError(f"{path}.weight", reference.weight, "only a scorer has a weight")
            if made.role is Role.FILTER:
                filters.append(made.value)
            elif made.role is Role.PICKER:
                pickings.append(made.value)
            else:
                rule = f"a {made.role.value} has no place in a profile"
                raise _RefusedError(f"{path}.pluginRef", name, rule)
        if len(pickings) > 1:
            raise _RefusedError(where, profile.plugins, "a profile has one picker")
        picking = pickings[0] if pickings else Picking(Picker.MAX_SCORE, 1)
        return endpoint_profile(picking.picker, tuple(scorers), tuple(filters), picking.endpoints - 1)

    @staticmethod
    def _weighted(path: str, scorer: Scorer, weight: float | None) -> Weighted:
        try:
            return Weighted(scorer, 1.0 if weight is None else weight)
        except ValueError as error:
            raise _RefusedError(f"{path}.weight", weight, str(error)) from None

    def _parsers(self) -> tuple[str, ...]:
        document = self._document
        handler = document.request_handler
        if handler is not None:
            if not handler.parsers:
                raise _RefusedError("requestHandler.parsers", handler.parsers, "no parsers configured")
            return tuple(
                self.find(f"requestHandler.parsers[{place}].pluginRef", each.plugin_ref, Role.PARSER)
                for place, each in enumerate(handler.parsers)
            )
        if document.parser is not None:
            return (self.find("parser.pluginRef", document.parser.plugin_ref, Role.PARSER),)
        return DEFAULT_PARSERS

    def _check_data_layer(self) -> None:
        layer = self._document.data_layer
        for place, source in enumerate(layer.sources if layer else ()):
            path = f"dataLayer.sources[{place}]"
            self.find(f"{path}.pluginRef", source.plugin_ref, Role.SOURCE)
            for number, extractor in enumerate(source.extractors):
                where = f"{path}.extractors[{number}].pluginRef"
                self.find(where, extractor.plugin_ref, Role.EXTRACTOR)

    def _prefix(self, profile: SchedulingProfile) -> PrefixSource | None:
        """Return where prefix matches come from: the producer declared, else the default where one is needed."""
        producers = self._of(Role.PREFIX)
        if producers:
            source: PrefixSource = self._plugins[producers[0]].value
            return source
        if not profile.reads_prefix:
            return None
        layer = self._document.data_layer
        if layer is not None and not layer.inject_defaults:
            rule = "required attribute PrefixCacheMatchInfo has no producer, and injectDefaults is false"
            raise _RefusedError("dataLayer.injectDefaults", layer.inject_defaults, rule)
        return PrefixSource(precise=False)

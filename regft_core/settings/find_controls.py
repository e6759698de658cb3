"""Controls: the arms that separate a method's ingredient from what comes along with it.

An arm has the controls that it declares (``derived``), those that its YAML names (``controlled_by``) or that of what it
is a variant of, listed arms that are ``control_for`` it, and, as a combination (``combines``), each of its ingredients
alone. A listed arm that trains the same as a control is that control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regft_core.errors import ConfigError
from regft_core.names import listing, plural
from regft_core.schema.method import Method, Registry, is_name
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.trial_values import trials_of


@dataclass(frozen=True)
class Control:
    """A control of a listed method (or of a control of one) that is not listed."""

    name: str
    control_for: str
    differs_by: str
    #: Whether ``control_for`` is a missing control itself.
    in_turn: bool = False

    def __str__(self) -> str:
        differs = f" (differs by: {self.differs_by})" if self.differs_by else ""
        lacks = "needs its own control" if self.in_turn else "is listed without its control"
        return f"'{self.control_for}' {lacks} '{self.name}'{differs}"


def lacking(missing: Sequence[Control]) -> list[str]:
    """One warning for all missing controls; none where none is missing."""
    if not missing:
        return []
    methods = dict.fromkeys(control.control_for for control in missing if not control.in_turn)
    lack = "has no control in the grid" if len(methods) == 1 else "have no control, or not all of them, in the grid"
    return [
        f"{listing(methods)} {lack}, so a gain cannot be traced to one ingredient. "
        f"`regft controls` lists {plural(len(missing), 'control')}; `regft controls --write` adds them."
    ]


@dataclass
class Controls:
    """What is known of the controls of the listed methods.

    Attributes:
        missing: controls that are not listed.
        present: (method, control) pairs of which both are listed.
        twins: (method, listed arm that trains the same as a control of it) -> in what they differ.
        without: listed methods for which no control is declared at all, though they add something.
    """

    missing: list[Control] = field(default_factory=list)
    present: list[tuple[str, str]] = field(default_factory=list)
    twins: dict[tuple[str, str], str] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)


def find_controls(builder: MethodBuilder, listed: Mapping[str, Method]) -> Controls:
    """Find the controls of ``listed`` methods, and of those controls in turn."""
    controls, arms = Controls(), _Arms(builder, listed)
    queue = list(listed)
    seen = set(queue)
    for name in queue:
        names = _controls_of(builder, listed, name)
        if not names and name in listed and _needs_control(listed[name], builder.registry):
            controls.without.append(name)
        for control in names:
            method, twin = arms.method(control), arms.listed_as(control)
            if twin is not None and twin != name and (name, twin) not in controls.present:
                controls.present.append((name, twin))
                if twin != control and method is not None:
                    controls.twins[name, twin] = method.config.differs_by
            elif twin is None and control not in seen:
                if method is None and builder.derivation(control) is not None:
                    continue  # there is none under these settings: no factor of the compute, for instance
                seen.add(control)
                differs = method.config.differs_by if method is not None else ""
                controls.missing.append(Control(control, name, differs, in_turn=name not in listed))
                queue.append(control)
    return controls


def _controls_of(builder: MethodBuilder, listed: Mapping[str, Method], name: str) -> list[str]:
    """Return the controls of an arm: of its family (``variant_of``), and those that it declares itself."""
    controls: dict[str, None] = {}
    family = [name]
    for member in family:
        controls |= dict.fromkeys(other for other, method in listed.items() if member in method.config.control_for)
        try:
            document = builder.document(member)
        except ConfigError:
            continue  # told where it is listed
        data = document.data if document is not None else {}
        controls |= dict.fromkeys([*_names(data.get("controlled_by")), *_names(data.get("combines"))])
        if member in listed and listed[member].of is None:
            controls |= dict.fromkeys(f"{member}_{end}" for end in builder.controls(member))
        family += [parent for parent in _names(data.get("variant_of")) if parent not in family and is_name(parent)]
    return [control for control in controls if control != name and is_name(control)]


class _Arms:
    """Arms, listed or not, and the listed arms that train the same."""

    def __init__(self, builder: MethodBuilder, listed: Mapping[str, Method]) -> None:
        self._builder = builder
        self._methods: dict[str, Method | None] = dict(listed)
        self._listed: dict[str, str] = {}
        with builder.silent():
            self._listed = {self._training(method): name for name, method in reversed(list(listed.items()))}
        self._names = {name: name for name in listed}

    def method(self, name: str) -> Method | None:
        """The arm ``name``; None where it is wrong: then what is wrong is told when it is listed."""
        if name not in self._methods:
            self._methods[name] = None
            with self._builder.silent():
                document = self._builder.document(name)
                self._methods[name] = self._builder.build(name, document) if document else None
        return self._methods[name]

    def listed_as(self, name: str) -> str | None:
        """The listed arm of this name, else one that trains the same."""
        if name not in self._names and (method := self.method(name)) is not None:
            with self._builder.silent():
                self._names[name] = self._listed.get(self._training(method), "")
        return self._names.get(name) or None

    def _training(self, method: Method) -> str:
        """Equal for arms that train the same, on every task."""
        builder, settings = self._builder, self._builder.settings
        every: list[Method | None] = [method]
        for task, own in settings.task_settings.items():
            if own.methods and (document := builder.document(method.name, task)) is not None:
                every.append(builder.build(method.name, document, task))
        trained = [sorted(builder.settings_of(one, acting=True).items()) for one in every if one is not None]
        return repr([trials_of(settings.tuning, method), *trained])


def with_twins(methods: Mapping[str, Method], controls: Controls) -> dict[str, Method]:
    """``methods`` in which an arm that trains the same as a control says so; plain fine-tuning is every one's."""
    found = dict(methods)
    for (name, twin), text in controls.twins.items():
        config = found[twin].config
        if not found[twin].finetune.explicit and not any(phase.regularisers for phase in found[twin].phases):
            continue
        said = "; ".join(filter(None, [config.differs_by, f"for {name}: {text}" if config.differs_by else text]))
        update = {"control_for": (*config.control_for, name), "differs_by": said}
        found[twin] = replace(found[twin], config=config.model_copy(update=update))
    return found


def _needs_control(method: Method, registry: Registry) -> bool:
    """Plain arms, controls and arms that train no encoder are what others are compared with."""
    declared = [registry[name].declare(options) for phase in method.phases for name, options in phase.regularisers]
    opponent = any(one.freezes_encoder or one.owns_prediction for one in declared)
    return bool(declared) and not opponent and not method.config.control_for


def _names(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str))

"""Controls: the arms that separate a method's ingredient from what comes along with it.

An arm has the controls that it declares (``derived``), those that its YAML names (``controlled_by``) or that of what it
is a variant of, listed arms that are ``control_for`` it, and, as a combination (``combines``), each of its ingredients
alone. A listed arm that trains the same as a control is that control.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from regft_core.errors import ConfigError
from regft_core.names import listing, plural
from regft_core.schema.method import Method, Registry
from regft_core.settings.build_method import MethodBuilder, names_of
from regft_core.settings.trial_values import trials_of


@dataclass(frozen=True)
class Control:
    """A control of a listed method (or of a control of one) that is not listed."""

    name: str
    control_for: str
    differs_by: str

    def __str__(self) -> str:
        differs = f" (differs by: {self.differs_by})" if self.differs_by else ""
        return f"'{self.control_for}' has the control '{self.name}'{differs}"


@dataclass
class Controls:
    """Controls of the listed methods.

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

    def warnings(self) -> list[str]:
        """Return one warning for all missing controls; none where none is missing."""
        if not self.missing:
            return []
        return [
            f"{listing(dict.fromkeys(control.control_for for control in self.missing))}: not every control is in the "
            f"grid, so a gain cannot be traced to one ingredient. `regft controls` lists "
            f"{plural(len(self.missing), 'control')}; `regft controls --write` adds them."
        ]


def find_controls(builder: MethodBuilder, listed: Mapping[str, Method]) -> Controls:
    """Find the controls of ``listed`` methods, and of those controls in turn."""
    controls, queue = Controls(), list(listed)
    trained = {_training(builder, method): name for name, method in reversed(list(listed.items()))}
    for name in queue:
        names = _controls_of(builder, listed, name)
        if not names and name in listed and _needs_control(listed[name], builder.registry):
            controls.without.append(name)
        for control in names:
            method = listed.get(control)
            with suppress(ConfigError):  # what is wrong is told when it is listed
                method = method or builder.build(control)
            if control in listed:
                controls.present.append((name, control))
            elif method is not None and (twin := trained.get(_training(builder, method))) is not None:
                if twin != name and (name, twin) not in controls.present:
                    controls.present.append((name, twin))
                    controls.twins[name, twin] = method.config.differs_by
            elif control not in queue and (method is not None or builder.derivation(control) is None):
                # A declared control that cannot be built is none under these settings: its compute has no factor.
                differs = method.config.differs_by if method is not None else ""
                controls.missing.append(Control(control, name, differs))
                queue.append(control)
    return controls


def _controls_of(builder: MethodBuilder, listed: Mapping[str, Method], name: str) -> list[str]:
    """Return the controls of an arm: of its family (``variant_of``), and those that it declares itself."""
    controls: dict[str, None] = {}
    for member in builder.family(name):
        controls |= dict.fromkeys(other for other, method in listed.items() if member in method.config.control_for)
        with suppress(ConfigError):  # told where it is listed
            document = builder.document(member)
            for key in ("controlled_by", "combines"):
                controls |= dict.fromkeys(names_of(document, key))
        if member in listed and listed[member].of is None:
            controls |= dict.fromkeys(f"{member}_{end}" for end in builder.controls(member))
    return [control for control in controls if control != name]


def _training(builder: MethodBuilder, method: Method) -> str:
    """Equal for arms that train the same, on every task."""
    behind = builder.behind(method.name)
    layers = [
        (task, settings.methods[name])
        for task, settings in builder.settings.task_settings.items()
        for name in sorted(behind & settings.methods.keys())
    ]
    settings = sorted(builder.settings_of(method, acting=True).items())
    return repr([trials_of(builder.settings.tuning, method), layers, settings])


def with_twins(methods: Mapping[str, Method], twins: Mapping[tuple[str, str], str]) -> dict[str, Method]:
    """``methods`` in which an arm that trains the same as a control says so; plain fine-tuning is every one's."""
    found = dict(methods)
    for (name, twin), text in twins.items():
        config = found[twin].config
        if found[twin].finetune.explicit or any(phase.regularisers for phase in found[twin].phases):
            said = f"{config.differs_by}; for {name}: {text}" if config.differs_by else text
            update = {"control_for": (*config.control_for, name), "differs_by": said}
            found[twin] = replace(found[twin], config=config.model_copy(update=update))
    return found


def _needs_control(method: Method, registry: Registry) -> bool:
    """Plain arms, controls and arms that train no encoder are what others are compared with."""
    declared = [registry[name].declare(options) for phase in method.phases for name, options in phase.regularisers]
    opponent = any(one.freezes_encoder or one.owns_prediction for one in declared)
    return bool(declared) and not opponent and not method.config.control_for

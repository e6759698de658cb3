"""Controls: the arms that separate a method's ingredient from what comes along with it.

An arm has the controls that it declares or derives (``derived``), those that its YAML names (``controlled_by``) or that
of what it is a variant of, listed arms that are ``control_for`` it, and, as a combination (``combines``), each of its
ingredients alone. A listed arm that trains the same as a declared control, also plain fine-tuning, stands for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError
from regft_core.names import listing, plural
from regft_core.schema.method import Method
from regft_core.settings.build_method import MethodBuilder, names_of
from regft_core.settings.derived import differences, sentence, takes_away, undeclared
from regft_core.settings.document import edited
from regft_core.settings.project import trials_of

#: Plain fine-tuning under the shared protocol.
PLAIN = "vanilla"


@dataclass(frozen=True)
class Control:
    """A control of a listed method: ``name`` is a listed arm, or one to list.

    ``differs_by``: how its settings differ, in a sentence. ``zero``: whether it takes the ingredient away and puts
    nothing in its place. ``declared``: the control that the method declares; ``name`` trains the same.
    """

    name: str
    control_for: str
    differs_by: str
    zero: bool
    declared: str
    listed: bool

    @property
    def kind(self) -> str:
        return "control" if self.zero else "replacement"

    def __str__(self) -> str:
        differs = f" (differs by: {self.differs_by})" if self.differs_by else ""
        return f"'{self.control_for}' has the {self.kind} '{self.name}'{differs}"


def controls_of(builder: MethodBuilder, listed: Mapping[str, Method], warnings: list[str]) -> list[Control]:
    """Return the controls of the listed methods; of one that cannot be built add the reason to ``warnings``."""
    trained = {_training(builder, method): name for name, method in reversed(list(listed.items()))}
    with suppress(ConfigError):  # told where it is listed
        trained.setdefault(_training(builder, builder.build(PLAIN)), PLAIN)
    found: dict[tuple[str, str], Control] = {}
    for name, method in listed.items():
        for declared in _declared_by(builder, listed, name):
            try:
                control = listed[declared] if declared in listed else builder.build(declared)
                same = declared if declared in listed else trained.setdefault(_training(builder, control), declared)
                if same != name:
                    zero = takes_away(*(builder.settings_of(one, acting=True) for one in (method, control)))
                    text = sentence(builder.settings_of(method), builder.settings_of(control))
                    if derivation := builder.derivation(builder.base(control.name)):
                        text += f" ({derivation[1].why})"
                    found.setdefault((name, same), Control(same, name, text, zero, declared, same in listed))
            except ConfigError as error:
                warnings += [f"there is no control '{declared}': {problem}" for problem in error.problems]
    return list(found.values())


def _declared_by(builder: MethodBuilder, listed: Mapping[str, Method], name: str) -> list[str]:
    """Return the names of an arm's controls: its own, and those of its family (``variant_of``)."""
    family, controls = builder.family(name), dict[str, None]()
    for member in family:
        with suppress(ConfigError):  # told where it is listed
            document = builder.document(member)
            controls |= dict.fromkeys([*names_of(document, "combines"), *names_of(document, "controlled_by")])
    of = {other: one.config.control_for for other, one in listed.items()}
    own = [other for other, targets in of.items() if name in targets]
    controls |= dict.fromkeys(own or [other for other, targets in of.items() if set(family) & set(targets)])
    if listed[name].of is None:
        controls |= dict.fromkeys(f"{name}_{end}" for end in builder.controls(name))
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


def warnings_of(builder: MethodBuilder, methods: Mapping[str, Method], controls: Sequence[Control]) -> Iterator[str]:
    """Yield differences of listed controls that they do not declare; one text for methods without a listed control."""
    for control in methods.values():
        for name in control.config.control_for:
            if name in methods:
                apart = differences(builder.settings_of(methods[name]), builder.settings_of(control))
                if more := undeclared(apart, control.config.differs_in):
                    document = builder.document(control.name)
                    assert document is not None
                    yield (
                        f"{document.place(('differs_in',))}: the control '{control.name}' differs from '{name}' in "
                        f"more than {listing(control.config.differs_in)}: {listing(more)}; make these the same, or "
                        "name them in differs_in"
                    )
    controlled = {control.control_for for control in controls if control.listed}
    if alone := [control for control in controls if control.control_for not in controlled]:
        gain = any(control.zero for control in alone)
        shown = "no gain is shown" if gain else "nothing shows whether their ingredients matter"
        yield (
            f"{builder.params.file}: {listing(dict.fromkeys(one.control_for for one in alone))}: no control is in the "
            f"grid, so {shown}. `regft controls` lists {plural(len(missing(controls)), 'control')}; "
            "`regft controls --write` adds them."
        )


def missing(controls: Iterable[Control]) -> list[str]:
    return list(dict.fromkeys(control.name for control in controls if not control.listed))


def with_controls(file: Path, names: Sequence[str]) -> str:
    """Return the text of a valid params.yaml with further names before the last method, whose comments stay with it."""

    def add(data: Any) -> None:
        listed = data["methods"] = deepcopy(data["methods"])  # a YAML alias of it stays as it is
        for name in names:
            listed.insert(len(listed) - 1, name)

    return edited(file, add)

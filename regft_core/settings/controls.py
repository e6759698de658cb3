"""Controls: the arms that separate a method's ingredient from what comes along with it.

An arm has the controls that it declares or derives (``derived``), those that its YAML names (``controlled_by``) or that
of what it is a variant of, listed arms that are ``control_for`` it, and, as a combination (``combines``), each of its
ingredients alone. A listed arm that trains the same as a control is that control, also plain fine-tuning. A control is
of strength 0 (``difference.takes_away``), or has something in the place of the ingredient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ruamel.yaml import YAML, nodes

from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.names import listing, plural
from regft_core.schema.method import Method
from regft_core.settings.build_method import MethodBuilder, names_of
from regft_core.settings.difference import differences, sentence, takes_away, undeclared
from regft_core.settings.document import load_yaml
from regft_core.settings.trial_values import trials_of

#: Plain fine-tuning under the shared protocol.
PLAIN = "vanilla"


@dataclass(frozen=True)
class Control:
    """A control of a listed method (or of a control of one) that is not listed."""

    name: str
    control_for: str
    differs_by: str
    zero: bool = False

    @property
    def kind(self) -> str:
        """Say whether it takes the ingredient away or puts something in its place."""
        return "control" if self.zero else "replacement"

    def __str__(self) -> str:
        differs = f" (differs by: {self.differs_by})" if self.differs_by else ""
        return f"'{self.control_for}' has the {self.kind} '{self.name}'{differs}"


@dataclass
class Controls:
    """Controls of the listed methods.

    Attributes:
        missing: controls that are not listed.
        present: (method, control) pairs of which both are listed.
        twins: (method, listed arm that trains the same as a control of it) -> in what they differ.
    """

    missing: list[Control] = field(default_factory=list)
    present: list[tuple[str, str]] = field(default_factory=list)
    twins: dict[tuple[str, str], str] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        """Return one warning for all methods of whose controls none is listed."""
        controlled = {method for method, _ in self.present}
        alone = [control for control in self.missing if control.control_for not in controlled]
        if not alone:
            return []
        zero = any(control.zero for control in alone)
        return [
            f"{listing(dict.fromkeys(control.control_for for control in alone))}: no control is in the grid, so "
            f"{'no gain is shown' if zero else 'nothing shows whether their ingredients matter'}. "
            f"`regft controls` lists {plural(len(self.missing), 'control')}; `regft controls --write` adds them."
        ]


def find_controls(builder: MethodBuilder, listed: Mapping[str, Method]) -> Controls:
    """Find the controls of ``listed`` methods, and of those controls in turn."""
    controls, queue = Controls(), list(listed)
    trained = {_training(builder, method): name for name, method in reversed(list(listed.items()))}
    with suppress(ConfigError):  # proposed in place of a control that trains the same
        trained.setdefault(_training(builder, builder.build(PLAIN)), PLAIN)

    def is_zero(name: str, control: Method) -> bool:
        with suppress(ConfigError):
            pair = (builder.build(name), control)
            return takes_away(*(builder.settings_of(method, acting=True) for method in pair))
        return False

    for name in queue:
        for control in _controls_of(builder, listed, name):
            if control in listed:
                controls.present.append((name, control))
                continue
            method = None
            with suppress(ConfigError):  # what is wrong is told when it is listed
                method = builder.build(control)
            alike = trained.setdefault(_training(builder, method), control) if method is not None else control
            differs = differs_by(builder, method) if method is not None else ""
            if alike in listed:
                if alike != name and (name, alike) not in controls.present:
                    controls.present.append((name, alike))
                    controls.twins[name, alike] = differs
            elif alike not in queue and (method is not None or builder.derivation(control) is None):
                # A declared control that cannot be built is none under these settings: its compute has no factor.
                controls.missing.append(Control(alike, name, differs, method is not None and is_zero(name, method)))
                queue.append(alike)
    return controls


def differs_by(
    builder: MethodBuilder, control: Method, task: str | None = None, warnings: list[str] | None = None
) -> str:
    """Return in what a control (on a task) differs from its methods; add to ``warnings`` what it does not declare."""
    sentences: dict[str, list[str]] = {}
    settings = builder.settings_of(control)
    for name in control.config.control_for:
        with suppress(ConfigError):  # told where it is read
            of_method = builder.settings_of(builder.build(name, None, task))
            sentences.setdefault(sentence(of_method, settings), []).append(name)
            more = undeclared(differences(of_method, settings), control.config.differs_in)
            if more and warnings is not None and name in builder.settings.methods:
                document = builder.document(control.name)
                assert document is not None
                warnings.append(
                    f"{document.place(('differs_in',))}: the control '{control.name}' differs from '{name}' in more "
                    f"than {listing(control.config.differs_in)}: {listing(more)}; make these the same, or name them "
                    "in differs_in"
                )
    each = [
        f"for {listing(names)}: {text}" if len(sentences) > 1 else text for text, names in sentences.items() if text
    ]
    derivation = builder.derivation(builder.base(control.name))
    return "; ".join(each) + (f" ({derivation[1].why})" if derivation is not None and sentences else "")


def described(
    builder: MethodBuilder, methods: Mapping[str, Method], controls: Controls, warnings: list[str]
) -> dict[str, Method]:
    """Return ``methods`` whose controls say in what they differ, and of which methods they are of strength 0."""
    found = dict(methods)
    for name, method in methods.items():
        if method.config.control_for:
            found[name] = described_as(method, differs_by(builder, method, None, warnings))
    for (name, twin), text in controls.twins.items():
        method = found[twin]
        # Plain fine-tuning is the control of every method.
        if method.finetune.explicit or any(phase.regularisers for phase in method.phases):
            before = method.config.differs_by
            found[twin] = described_as(method, f"{before}; for {name}: {text}" if before else text, (name,))
    acting = {name: builder.settings_of(method, acting=True) for name, method in methods.items()}
    controlled = {target for method in found.values() for target in method.config.control_for}
    for name, other in controls.present:
        if name in found and takes_away(acting[name], acting[other]):
            config = found[other].config
            alone = (name, other) in controls.twins or other in found[name].config.combines or name not in controlled
            if alone or name in config.control_for:
                zero_for = (*config.zero_for, name)
                found[other] = replace(found[other], config=config.model_copy(update={"zero_for": zero_for}))
    return found


def described_as(method: Method, text: str, control_for: tuple[str, ...] = ()) -> Method:
    """Return a control with what it differs in, perhaps of further methods."""
    update = {"control_for": (*method.config.control_for, *control_for), "differs_by": text}
    return replace(method, config=method.config.model_copy(update=update))


def _controls_of(builder: MethodBuilder, listed: Mapping[str, Method], name: str) -> list[str]:
    """Return the controls of an arm: of its family (``variant_of``), and those that it declares itself."""
    controls: dict[str, None] = {}
    for member in builder.family(name):
        controls |= dict.fromkeys(other for other, method in listed.items() if member in method.config.control_for)
        with suppress(ConfigError):  # told where it is listed
            document = builder.document(member)
            for key in ("controlled_by", "combines"):
                controls |= dict.fromkeys(names_of(document, key))
    if name in listed and listed[name].of is None:
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


def with_controls(text: str, controls: Iterable[Control], file: str = "params.yaml") -> str:
    """``text`` of a valid params.yaml with each control at the end of its list of methods.

    Raises:
        ConfigError: the file is written in a way that cannot be changed safely.
    """
    names = [control.name for control in controls]
    before = load_yaml(Path(file), Path(), text).data
    listed = next(value for key, value in YAML(typ="safe").compose(text).value if key.value == "methods")
    if isinstance(listed, nodes.SequenceNode) and listed.value:
        end = listed.value[-1].end_mark.index
        if listed.flow_style:
            text = text[:end] + "".join(f", {name}" for name in names) + text[end:]
        else:
            line, newline, rest = text[end:].partition("\n")
            items = "".join(f"\n{' ' * listed.start_mark.column}- {name}" for name in names)
            text = text[:end] + line + items + newline + rest
    if load_yaml(Path(file), Path(), text).data == {**before, "methods": [*before["methods"], *names]}:
        return text
    message = "is written in a way that cannot be changed without disturbing it"
    line = listed.start_mark.line + 1
    raise ConfigError([Problem("cannot-edit", file, line, "methods", message, f"add by hand: {', '.join(names)}")])


def write_controls(root: Path, controls: Iterable[Control], file: str = "params.yaml") -> None:
    """Insert ``controls`` into the project's params file, atomically; a linked file stays a link."""
    path = (root / file).resolve()
    write_text(path, with_controls(path.read_text(encoding="utf-8"), controls, file))

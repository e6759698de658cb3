"""From a method's file and what is laid over it to the method as it runs on a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.names import listing
from regft_core.schema.method import Method, Registry, is_name
from regft_core.schema.methods import MethodConfig
from regft_core.schema.params import Params
from regft_core.schema.sources import paths
from regft_core.settings.checks.methods import (
    Matched,
    SharedFor,
    build_method,
    check_parts,
    incomparable,
    method_factor,
)
from regft_core.settings.derived import Change, changes_of, flipped, split_name
from regft_core.settings.difference import Settle, differences, sentence, settings_of, undeclared
from regft_core.settings.files import METHODS, find, read
from regft_core.settings.messages.explain import validate
from regft_core.settings.yaml.document import Document, KeyPath, dotted
from regft_core.settings.yaml.layers import Layered, lay
from regft_core.settings.yaml.valid_parts import parts

#: Keys of ``method_settings`` that are no part of a method's file.
NOT_IN_FILE = ("base",)
#: Keys of a method's file that speak of this file alone, not of arms that start from it.
_OF_THE_FILE = ("description", "paper", "control_for", "differs_in", "variant_of", "combines")


class MethodBuilder:
    """Reads methods with their layers: the file, ``method_settings``, ``task_settings.<task>.methods``, tuned values.

    Attributes:
        problems: everything that was wrong so far.
        warnings: controls that differ from their methods in more than they declare.
    """

    def __init__(
        self,
        root: Path,
        registry: Registry,
        params: Document,
        settings: Params,
        *,
        exact: bool = True,
        settle: Settle = lambda phase, _: phase.training,
    ) -> None:
        self.root = root
        self.registry = registry
        self.params = params
        #: ``params.yaml``; defaults stand in it for what is wrong (for wrong values of ``training``: not ``exact``).
        self.settings = settings
        self.exact = exact
        self.problems: list[Problem] = []
        self.settle = settle
        self._files: dict[str, Document | None] = {}
        self._derived: dict[str, tuple[str, Change] | None] = {}
        #: (control, task) -> in what it differs from its methods.
        self._said: dict[tuple[str, str | None], str] = {}
        self.warnings: list[str] = []

    # -------------------------------------------------------------------------------- documents

    def knows(self, name: str) -> bool:
        """Whether there is such an arm: a file, an arm with ``base``, or a control that an arm declares."""
        own = self.settings.method_settings.get(name)
        based = own is not None and own.known("base") and own.base is not None
        return based or find(self.root, METHODS, name) is not None or self.derivation(name) is not None

    def derivation(self, name: str) -> tuple[str, Change] | None:
        """(arm, change) of a control that an arm declares; None for any other name."""
        if name not in self._derived:
            self._derived[name] = None  # asked for again meanwhile, it is no control
            if find(self.root, METHODS, name) is None:
                self._derived[name] = self._derive(name)
        return self._derived[name]

    def _derive(self, name: str) -> tuple[str, Change] | None:
        for arm, end in split_name(name):
            if is_name(arm) and self.knows(arm) and (change := self.controls(arm).get(end)) is not None:
                return arm, change
        return None

    def near(self, name: str) -> list[str]:
        """Controls that may be meant by an unknown name: those of every method that it begins with."""
        arms = [arm for arm, _ in split_name(name) if is_name(arm) and self.knows(arm)]
        return [f"{arm}_{end}" for arm in arms for end in self.controls(arm)]

    def controls(self, name: str) -> dict[str, Change]:
        """The controls that an arm declares, by the end of their names; none where its file cannot be read."""
        try:
            document = self.document(name)
            return changes_of(document.data, self._families(document.data), self.registry) if document else {}
        except ConfigError:
            return {}

    def _families(self, data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Values of the methods that an arm is a variant of, and of those that they are variants of."""
        seen, queue = set[str](), [data]
        while queue:
            given = queue.pop(0).get("variant_of") or ()
            for name in [given] if isinstance(given, str) else given:
                if isinstance(name, str) and is_name(name) and name not in seen and self.knows(name):
                    seen.add(name)
                    document = self.document(name)
                    if document is not None:
                        queue.append(document.data)
                        yield document.data

    def base(self, name: str) -> str:
        """The method whose file the listed name stands for: another one's only for an arm with ``base``."""
        own = self.settings.method_settings.get(name)
        return own.base if own is not None and own.base is not None else name

    def source(self, name: str, task: str | None = None) -> Document | None:
        """What a name stands for before its own layers: a file, or a control of an arm (on a task); None: neither.

        Raises ConfigError when the file cannot be read.
        """
        if name not in self._files:
            self._files[name] = read(self.root, METHODS, name)
        found = self._files[name]
        if found is None and (derivation := self.derivation(name)) is not None:
            arm, change = derivation
            place = self.document(arm, task)
            return flipped(place, arm, change) if place is not None else None
        return found

    def document(self, name: str, task: str | None = None) -> Document | None:
        """A method's file with its layers; those of one task too where ``task`` is given. None: there is no such arm.

        Raises ConfigError when the file cannot be read.
        """
        base = self.base(name)
        found = self.source(base, task)
        if found is None:
            return None
        if name in self.settings.method_settings:
            if base != name:
                found = _without_family(found, base)
            found = lay(found, self.params, ("method_settings", name), skip=NOT_IN_FILE)
        on_task = self.settings.task_settings.get(task) if task is not None else None
        if on_task is not None and name in on_task.methods:
            found = lay(found, self.params, ("task_settings", str(task), "methods", name))
        return _with_own_sources(found) if isinstance(found, Layered) else found

    # ---------------------------------------------------------------------------------- methods

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within the block problems are forgotten, and a file that cannot be read ends it: both are told elsewhere."""
        before = len(self.problems)
        try:
            with suppress(ConfigError):
                yield
        finally:
            del self.problems[before:]

    def build(
        self,
        name: str,
        document: Document,
        shared: SharedFor,
        task: str | None = None,
        trail: tuple[str, ...] = (),
        *,
        tuned: bool = False,
    ) -> Method | None:
        """The method that ``document`` describes, or None; what is wrong goes to ``problems``.

        Args:
            shared: the protocol that the method's own values are laid over.
            task: the task that it is for, if it is for one.
            trail: methods whose compute is being matched, outermost first.
            tuned: whether tuned values are laid over it: a control is compared with its methods without them.
        """
        config, found = validate(MethodConfig, document)
        self.problems += found
        if config is None:
            known = parts(MethodConfig, document.data)
            self.problems += check_parts(self.root, name, known, document, self.registry, self.knows)
            return None
        matched = self._matched(name, document, shared, task, trail)
        method, found = build_method(
            self.root, name, config, document, self.registry, shared, matched, self.knows, exact=self.exact
        )
        self.problems += found
        if method is None or not config.control_for or trail:
            return method
        if not tuned or (name, task) not in self._said:
            self._said[name, task] = self._sentences(method, document, shared, task)
        derivation = self.derivation(self.base(name))
        said = self._said[name, task] + (f" ({derivation[1].why})" if derivation is not None else "")
        own = config.model_copy(update={"differs_by": said})
        if derivation is None:
            return replace(method, config=own)
        return replace(method, config=own, of=derivation[0], flipped=derivation[1].settings)

    def _sentences(self, control: Method, document: Document, shared: SharedFor, task: str | None) -> str:
        """In what a control differs from its methods; a warning where that is not what it declares."""
        said: dict[str, list[str]] = {}
        declared = control.config.differs_in
        for name in control.config.control_for:
            method = self._beside(name, control, shared, task)
            if method is None:
                continue
            one, other = self.settings_of(method, shared), self.settings_of(control, shared)
            said.setdefault(sentence(one, other), []).append(name)
            more = undeclared(differences(one, other), declared)
            if more and task is None and name in self.settings.methods:
                self.warnings.append(
                    f"{document.place(('differs_in',))}: the control '{control.name}' differs from '{name}' in more "
                    f"than {listing(declared)}: {listing(more)}; make these the same, or name them in differs_in"
                )
        if len(said) == 1:
            return next(iter(said))
        return "; ".join(f"for {listing(names)}: {text}" for text, names in said.items() if text)

    def _beside(self, name: str, other: Method, shared: SharedFor, task: str | None) -> Method | None:
        """The arm ``name``, to compare ``other`` with; None where it is wrong, which is told where it is read."""
        with self.silent():
            document = self.document(name, task)
            return self.build(name, document, shared, task, (other.name,)) if document is not None else None
        return None

    def settings_of(self, method: Method, shared: SharedFor, *, acting: bool = False) -> dict[str, Any]:
        """See :func:`difference.settings_of`."""
        return settings_of(method, self.registry, self.settle, shared(None), acting=acting)

    def _matched(
        self, name: str, document: Document, shared: SharedFor, task: str | None, trail: tuple[str, ...]
    ) -> Matched:
        def matched(other: str) -> float | None:
            """Factor of another method's compute; that method need not be listed."""
            if other in (name, *trail):
                circle = " -> ".join((*trail, name, other))
                self.problems.append(
                    document.problem("match-in-circle", (), f"steps_factor matches in a circle: {circle}", "break it")
                )
                return None
            try:
                place = self.document(other, task)
            except ConfigError as error:
                self.problems += error.problems
                return None
            training = shared(None)
            method = self.build(other, place, shared, task, (*trail, name)) if place is not None else None
            if method is None:
                return None
            if any(phase.data.task is not None or phase.data.size is not None for phase in method.phases):
                message = f"steps_factor cannot match '{other}', whose phases train on other rows than the cell's"
                self.problems.append(document.problem("match-other-rows", (), message, "give the factor as a number"))
                return None
            if reason := incomparable(method, training, self.registry):
                under, instead = ("", "steps") if training.max_steps is None else (" under max_steps", "epochs")
                message = f"steps_factor cannot match '{other}'{under}: {reason}"
                hint = f"give the factor as a number, or count {instead}"
                self.problems.append(document.problem("match-incomparable", (), message, hint))
                return None
            return method_factor(method, training, self.registry)

        return matched


def _without_family(file: Document, base: str) -> Document:
    """The settings of an arm's ``base``: what that file says about itself and its relatives is not true of its arm.

    So a control's arm is no control until it says so; it is a variant of its base, whose controls it shares.
    """
    data = {key: value for key, value in file.data.items() if key not in _OF_THE_FILE}
    return Document(
        {"description": f"{base} with settings of its own", **data, "variant_of": [base]}, file.lines, file.file
    )


def _with_own_sources(found: Layered) -> Layered:
    """``found`` with the source of every value that a layer sets; those of the file speak of the file's values."""
    given = found.data.get("sources", {})
    if not isinstance(given, dict):  # wrong, and told as that
        return found
    known = paths(found.data)
    own = {
        path: f"ours: {document.place(at)}"
        for top, (document, at) in found.origins.items()
        for path in known
        if f"{path}.".startswith(f"{dotted(top)}.")
    }
    return replace(found, data={**found.data, "sources": given | own}) if own else found


def tuned_document(document: Document, values: Mapping[str, object], source: Document, at: KeyPath) -> Layered:
    """``document`` with tuned values (nested mappings) laid over it; problems point to ``at`` in ``source``."""
    layer = Document({"values": dict(values)}, {("values",): source.line(at)}, source.file)
    return lay(document, layer, ("values",))

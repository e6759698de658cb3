"""From a method's file and what is laid over it to the method as it runs on a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from regft_core.config.checks.methods import (
    Matched,
    SharedFor,
    build_method,
    check_parts,
    incomparable,
    method_factor,
)
from regft_core.config.files import method_file
from regft_core.config.messages.explain import validate
from regft_core.config.method import Method, Registry
from regft_core.config.schema.methods import MethodConfig
from regft_core.config.schema.params import Params
from regft_core.config.schema.sources import paths
from regft_core.config.yaml.document import Document, KeyPath, dotted, load_yaml
from regft_core.config.yaml.layers import Layered, lay
from regft_core.config.yaml.valid_parts import parts
from regft_core.errors import ConfigError, Problem

#: Keys of ``method_settings`` that are no part of a method's file.
NOT_IN_FILE = ("base",)


class MethodBuilder:
    """Reads methods with their layers: the file, ``method_settings``, ``task_settings.<task>.methods``, tuned values.

    Attributes:
        problems: everything that was wrong so far.
    """

    def __init__(
        self, root: Path, registry: Registry, params: Document, settings: Params, *, exact: bool = True
    ) -> None:
        self.root = root
        self.registry = registry
        self.params = params
        #: ``params.yaml``; defaults stand in it for what is wrong (for wrong values of ``training``: not ``exact``).
        self.settings = settings
        self.exact = exact
        self.problems: list[Problem] = []
        self._files: dict[str, Document | None] = {}

    # -------------------------------------------------------------------------------- documents

    def base(self, name: str) -> str:
        """The method whose file the listed name stands for: another one's only for an arm with ``base``."""
        own = self.settings.method_settings.get(name)
        return own.base if own is not None and own.base is not None else name

    def document(self, name: str, task: str | None = None) -> Document | None:
        """A method's file with its layers; those of one task too where ``task`` is given. None: there is no such file.

        Raises ConfigError when the file cannot be read.
        """
        base = self.base(name)
        if base not in self._files:
            path = self.root / method_file(base)
            self._files[base] = load_yaml(path, self.root) if path.is_file() else None
        found = self._files[base]
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

    def build(
        self, name: str, document: Document, shared: SharedFor, task: str | None = None, trail: tuple[str, ...] = ()
    ) -> Method | None:
        """The method that ``document`` describes, or None; what is wrong goes to ``problems``.

        Args:
            shared: the protocol that the method's own values are laid over.
            task: the task that it is for, if it is for one.
            trail: methods whose compute is being matched, outermost first.
        """
        config, found = validate(MethodConfig, document)
        self.problems += found
        if config is None:
            known = parts(MethodConfig, document.data)
            self.problems += check_parts(self.root, name, known, document, self.registry)
            return None
        matched = self._matched(name, document, shared, task, trail)
        method, found = build_method(
            self.root, name, config, document, self.registry, shared, matched, exact=self.exact
        )
        self.problems += found
        return method

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
    """The file of an arm's ``base``: its arm is a variant of it, and no ingredient or combination of others."""
    data = {key: value for key, value in file.data.items() if key not in ("combines", "variant_of")}
    if "control_for" not in data:
        data["variant_of"] = [base]
    return Document(data, file.lines, file.file)


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

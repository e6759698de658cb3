"""From a method's file and what is laid over it to the method as it runs on a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.names import listing
from regft_core.schema.method import Method, Registry, is_name
from regft_core.schema.methods import MethodConfig
from regft_core.schema.params import Params
from regft_core.schema.sources import paths
from regft_core.schema.training import TrainingConfig
from regft_core.settings.derived import Change, changes_of, flipped, split_name
from regft_core.settings.difference import differences, sentence, settings_of, undeclared
from regft_core.settings.document import Document
from regft_core.settings.files import METHODS, find, missing, read
from regft_core.settings.laying import lay
from regft_core.settings.matched_compute import incomparable, method_factor
from regft_core.settings.phases import SharedFor, build_phases, options_problems, source_problems
from regft_core.settings.validate import validate

#: Keys of a method's file that speak of this file alone, not of arms that start from it.
_OF_THE_FILE = ("description", "paper", "control_for", "differs_in", "variant_of", "combines")


class MethodBuilder:
    """Reads methods with their layers: the file, ``method_settings``, ``task_settings.<task>.methods``, tuned values.

    Attributes:
        warnings: controls that differ from their methods in more than they declare.
    """

    def __init__(self, root: Path, registry: Registry, params: Document, settings: Params, shared: SharedFor) -> None:
        self.root = root
        self.registry = registry
        self.params = params
        self.settings = settings
        self.shared = shared
        self.warnings: list[str] = []
        self._files: dict[str, Document | None] = {}
        self._derived: dict[str, tuple[str, Change] | None] = {}
        #: (control, task) -> in what it differs from its methods.
        self._differences: dict[tuple[str, str | None], str] = {}

    # -------------------------------------------------------------------------------- documents

    def knows(self, name: str) -> bool:
        """Whether there is such an arm: a file, an arm with ``base``, or a control that an arm declares."""
        return (
            self.base(name) != name or find(self.root, METHODS, name) is not None or self.derivation(name) is not None
        )

    def derivation(self, name: str) -> tuple[str, Change] | None:
        """(arm, change) of a control that an arm declares; None for any other name."""
        if name not in self._derived:
            self._derived[name] = None  # asked for again meanwhile, it is no control
            if find(self.root, METHODS, name) is None:
                changes = ((arm, self.controls(arm).get(end)) for arm, end in self._readings(name))
                self._derived[name] = next(((arm, change) for arm, change in changes if change is not None), None)
        return self._derived[name]

    def _readings(self, name: str) -> Iterator[tuple[str, str]]:
        return ((arm, end) for arm, end in split_name(name) if is_name(arm) and self.knows(arm))

    def near(self, name: str) -> list[str]:
        """Controls that may be meant by an unknown name: those of every method that it begins with."""
        return [f"{arm}_{end}" for arm, _ in self._readings(name) for end in self.controls(arm)]

    def controls(self, name: str) -> dict[str, Change]:
        """The controls that an arm declares, by the end of their names; none where its file cannot be read."""
        with suppress(ConfigError):
            documents = [self.document(member) for member in self.family(name)]
            data, *families = (document.data for document in documents if document is not None)
            return changes_of(data, families, self.registry)
        return {}

    def family(self, name: str) -> list[str]:
        """Return an arm, the methods that it is a variant of, and those that they are variants of."""
        family = [name]
        for member in family:
            with suppress(ConfigError):  # told where it is listed
                parents = names_of(self.document(member), "variant_of")
                family += [parent for parent in parents if parent not in family and self.knows(parent)]
        return family

    def behind(self, name: str) -> set[str]:
        """Return an arm and the arms that it is a control of: what a task changes in one of them, it changes here."""
        behind = {name}
        while (derivation := self.derivation(self.base(name))) is not None:
            name = derivation[0]
            behind.add(name)
        return behind

    def base(self, name: str) -> str:
        """The method whose file the listed name stands for: another one's only for an arm with ``base``."""
        own = self.settings.method_settings.get(name)
        return own.base if own is not None and own.base is not None else name

    def source(self, name: str, task: str | None = None) -> Document | None:
        """Return what a name stands for before its own layers: a file, or a control of an arm; None: neither.

        Raises ConfigError when the file cannot be read.
        """
        if name not in self._files:
            self._files[name] = read(self.root, METHODS, name)
        if self._files[name] is None and (derivation := self.derivation(name)) is not None:
            arm, change = derivation
            place = self.document(arm, task)
            return flipped(place, arm, change) if place is not None else None
        return self._files[name]

    def document(self, name: str, task: str | None = None) -> Document | None:
        """A method's file with its layers; those of one task too where ``task`` is given. None: there is no such arm.

        Raises ConfigError when the file cannot be read.
        """
        base = self.base(name)
        file = self.source(base, task)
        if file is None:
            return None
        document = _without_family(file, base) if base != name else file
        document = lay(document, self.params, ("method_settings", name), skip=("base",))
        if task is not None:
            document = lay(document, self.params, ("task_settings", task, "methods", name))
        return _with_own_sources(document, file)

    # ---------------------------------------------------------------------------------- methods

    def build(
        self,
        name: str,
        document: Document | None = None,
        task: str | None = None,
        trail: tuple[str, ...] = (),
        *,
        tuned: Document | None = None,
    ) -> Method:
        """Return the method that ``document`` (by default its own) describes.

        Args:
            task: the task that it is for, if it is for one.
            trail: methods whose compute is being matched, outermost first.
            tuned: ``params.yaml`` with tuned values of the shared protocol, where the document has tuned values: a
                control is compared with its methods without them.

        Raises:
            ConfigError: everything that is wrong with it.
        """
        document = document or self.document(name, task)
        if document is None:
            raise ConfigError([missing(self.root, METHODS, name, self.params, ())])
        config, problems = validate(MethodConfig, document)
        if config is None:
            raise ConfigError(problems + options_problems(document, self.registry))

        def shared(rows: str | None) -> Document:
            return self.shared(task if rows is None else rows) if rows is not None or tuned is None else tuned

        phases, problems = build_phases(
            config, document, self.registry, shared, lambda other: self._factor(other, name, document, task, trail)
        )
        problems += [*self._unknown_names(name, config, document), *source_problems(config, document)]
        if problems or phases is None:
            raise ConfigError(problems)
        method = Method(name, config, phases)
        if not config.control_for or trail:
            return method
        if tuned is None or (name, task) not in self._differences:
            self._differences[name, task] = self._sentences(method, document, task)
        derivation = self.derivation(self.base(name))
        text = self._differences[name, task] + (f" ({derivation[1].why})" if derivation is not None else "")
        method = replace(method, config=config.model_copy(update={"differs_by": text}))
        return method if derivation is None else replace(method, of=derivation[0], flipped=derivation[1].settings)

    def _unknown_names(self, name: str, config: MethodConfig, document: Document) -> Iterator[Problem]:
        """Yield the problems of methods that a file names as its relatives."""
        for key in ("control_for", "controlled_by", "variant_of", "combines"):
            for i, target in enumerate(getattr(config, key)):
                at = (key, i) if (key, i) in document.places else (key,)
                if target == name:
                    hint = "name the method it belongs to"
                    yield document.problem("refers-to-itself", at, f"a method cannot be in its own '{key}'", hint)
                elif not self.knows(target):
                    yield missing(self.root, METHODS, target, document, at, without=name)

    def _sentences(self, control: Method, document: Document, task: str | None) -> str:
        """Return in what a control differs from its methods; warn where that is not what it declares."""
        sentences: dict[str, list[str]] = {}
        for name in control.config.control_for:
            try:
                method = self.build(name, None, task, (control.name,))
            except ConfigError:
                continue  # told where it is read
            settings, others = self.settings_of(method), self.settings_of(control)
            sentences.setdefault(sentence(settings, others), []).append(name)
            more = undeclared(differences(settings, others), control.config.differs_in)
            if more and task is None and name in self.settings.methods:
                self.warnings.append(
                    f"{document.place(('differs_in',))}: the control '{control.name}' differs from '{name}' in more "
                    f"than {listing(control.config.differs_in)}: {listing(more)}; make these the same, or name them "
                    "in differs_in"
                )
        if len(sentences) == 1:
            return next(iter(sentences))
        return "; ".join(f"for {listing(names)}: {text}" for text, names in sentences.items() if text)

    def settings_of(self, method: Method, *, acting: bool = False) -> dict[str, Any]:
        """See :func:`difference.settings_of`."""
        return settings_of(method, self.registry, self.settings.training, acting=acting)

    def _factor(self, other: str, name: str, document: Document, task: str | None, trail: tuple[str, ...]) -> float:
        """Return the factor of another method's compute; that method need not be listed. Raises ConfigError."""
        at = next((path for path in document.places if path[-1:] == ("match",)), ())
        if other in (name, *trail):
            circle = " -> ".join((*trail, name, other))
            problem = document.problem("match-in-circle", at, f"steps_factor matches in a circle: {circle}", "break it")
            raise ConfigError([problem])
        place = self.document(other, task)
        if place is None:
            raise ConfigError([missing(self.root, METHODS, other, document, at, without=name)])
        method = self.build(other, place, task, (*trail, name))
        training = TrainingConfig.model_validate(self.shared(task).data["training"])
        if reason := incomparable(method, training, self.registry):
            message = f"steps_factor cannot match '{other}': {reason}"
            raise ConfigError([document.problem("match-incomparable", at, message, "give the factor as a number")])
        return method_factor(method, training, self.registry)


def names_of(document: Document | None, key: str) -> list[str]:
    """Return the names that stand under a key of a method's file, as far as they can be ones."""
    value = document.data.get(key) if document is not None else None
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str) and is_name(item)]


def _without_family(file: Document, base: str) -> Document:
    """Return the settings of an arm's ``base``: what that file says of itself and its relatives is not true of its arm.

    So a control's arm is no control until it says so; it is a variant of its base, whose controls it shares.
    """
    data = {key: value for key, value in file.data.items() if key not in _OF_THE_FILE}
    own = {"description": f"{base} with settings of its own", **data, "variant_of": [base]}
    return Document(own, file.places, file.file)


def _with_own_sources(document: Document, file: Document) -> Document:
    """Return ``document`` with the source of each value that a layer sets; the file's speak of the file's values."""
    sources = document.data.get("sources", {})
    if not isinstance(sources, dict):  # wrong, and told as that
        return document
    own = {}
    for path in paths(document.data):
        at = tuple(path.split("."))
        place = document.place(at)
        if place.file != file.file and at in document.places:
            own[path] = f"ours: {place}"
    return replace(document, data={**document.data, "sources": sources | own}) if own else document

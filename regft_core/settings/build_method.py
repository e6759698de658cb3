"""From a method's file and what is laid over it to the method as it runs on a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema.method import Method, Registry, comparable, is_name, method_factor
from regft_core.schema.methods import MethodConfig, paths
from regft_core.schema.params import Params
from regft_core.schema.training import TrainingConfig
from regft_core.settings.derived import Change, changes_of, flipped, settings_of, split_name
from regft_core.settings.document import Document, KeyPath, leaves
from regft_core.settings.layers import lay
from regft_core.settings.phases import SharedFor, build_phases
from regft_core.settings.small import in_small
from regft_core.settings.validate import validate
from regft_core.settings.yaml_paths import METHODS, find, missing, read

#: Keys of a method's file that speak of this file alone, not of arms that start from it.
_OF_THE_FILE = ("description", "paper", "control_for", "differs_in", "variant_of", "combines")


class MethodBuilder:
    """Reads methods with their layers: file, ``method_settings``, ``task_settings.<task>.methods``, tuned values."""

    def __init__(self, root: Path, registry: Registry, params: Document, settings: Params, shared: SharedFor) -> None:
        self.root = root
        self.registry = registry
        self.params = params
        self.settings = settings
        self.shared = shared
        self._files: dict[str, Document | None] = {}
        self._derived: dict[str, tuple[str, Change] | None] = {}

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
                arms = ((arm, end) for arm, end in split_name(name) if is_name(arm) and self.knows(arm))
                changes = ((arm, self.controls(arm).get(end)) for arm, end in arms)
                self._derived[name] = next(((arm, change) for arm, change in changes if change is not None), None)
        return self._derived[name]

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
            file = read(self.root, METHODS, name)
            self._files[name] = file and in_small(file, self.settings)
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
            tuned: ``params.yaml`` with tuned values of the shared protocol, where the document has tuned values.

        Raises:
            ConfigError: everything that is wrong with it.
        """
        document = document or self.document(name, task)
        if document is None:
            raise ConfigError([missing(self.root, METHODS, name, self.params, ())])
        config, problems = validate(MethodConfig, document)
        if config is None:
            raise ConfigError(problems)

        def shared(rows: str | None) -> Document:
            return self.shared(task if rows is None else rows) if rows is not None or tuned is None else tuned

        def factor(other: str) -> float:
            return self._factor(other, name, document, task, trail)

        def lender(other: str) -> Method:
            at = next(path for path, value in leaves(document.data) if path[-1:] == ("method",) and value == other)
            return self._other(other, name, document, at, task, trail)

        phases = build_phases(config, document, self.registry, shared, factor, lender, problems)
        problems += self._unknown_names(name, config, document)
        if problems:
            raise ConfigError(problems)
        derivation = self.derivation(self.base(name)) if config.control_for else None
        if derivation is None:
            return Method(name, config, phases)
        return Method(name, config, phases, derivation[0], derivation[1].settings)

    def _unknown_names(self, name: str, config: MethodConfig, document: Document) -> Iterator[Problem]:
        """Yield relatives that are no methods, and sources of values that the file does not set."""
        for key in ("control_for", "controlled_by", "variant_of", "combines"):
            for i, target in enumerate(getattr(config, key)):
                at = (key, i) if (key, i) in document.places else (key,)
                if target == name:
                    hint = "name the method it belongs to"
                    yield document.problem("refers-to-itself", at, f"a method cannot be in its own '{key}'", hint)
                elif not self.knows(target):
                    yield missing(self.root, METHODS, target, document, at)
        known = paths(document.data)
        for path in config.sources:
            if path not in known:
                hint = suggestion(path, known)
                yield document.problem("unknown-source", ("sources", path), "this file sets no such value", hint)

    def settings_of(self, method: Method, *, acting: bool = False) -> dict[str, Any]:
        """See :func:`derived.settings_of`."""
        return settings_of(method, self.registry, self.settings.training, acting=acting)

    def _other(
        self, other: str, name: str, document: Document, at: KeyPath, task: str | None, trail: tuple[str, ...]
    ) -> Method:
        """Return a method that another one names ``at`` a place of its document. Raises ConfigError."""
        if other in (name, *trail):
            circle = " -> ".join((*trail, name, other))
            message = f"methods name each other in a circle: {circle}"
            raise ConfigError([document.problem("method-in-circle", at, message, "break it")])
        place = self.document(other, task)
        if place is None:
            raise ConfigError([missing(self.root, METHODS, other, document, at)])
        return self.build(other, place, task, (*trail, name))

    def _factor(self, other: str, name: str, document: Document, task: str | None, trail: tuple[str, ...]) -> float:
        """Return the factor of another method's compute; that method need not be listed. Raises ConfigError."""
        at = next((path for path in document.places if path[-1:] == ("match",)), ())
        method = self._other(other, name, document, at, task, trail)
        training = TrainingConfig.model_validate(self.shared(task).data["training"])
        if not comparable(method, training, self.registry):
            message = (
                f"steps_factor cannot match '{other}': it trains on other rows or another encoder, fits without steps, "
                "or counts steps beside epochs, so no factor holds for every number of rows"
            )
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
    """Return ``document`` with the source of each value that a layer sets, without those of values that it replaces."""
    sources = document.data.get("sources", {})
    if not isinstance(sources, dict):  # wrong, and told as that
        return document
    replaced = set(paths(file.data)) - set(paths(document.data))
    sources, own = {path: text for path, text in sources.items() if path not in replaced}, {}
    for path in paths(document.data):
        at = tuple(path.split("."))
        place = document.place(at)
        if place.file != file.file and at in document.places:
            own[path] = f"ours: {place}"
    return replace(document, data={**document.data, "sources": sources | own}) if own or replaced else document

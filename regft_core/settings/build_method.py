"""From a method's file and what is laid over it to the method as it runs on a task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from regft_core.errors import ConfigError, Problem
from regft_core.names import listing, suggestion
from regft_core.schema import DropoutConfig
from regft_core.schema.method import Lent, Method, Phase, Registry, comparable, is_name, method_factor
from regft_core.schema.methods import MethodConfig
from regft_core.schema.params import Params
from regft_core.schema.training import MatchConfig, PhaseTraining, TrainingConfig, scaled
from regft_core.settings.derived import Change, applies, changes_of, flipped, regularisers_of, settings_of
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.layers import lay, paths
from regft_core.settings.preset import in_small
from regft_core.settings.validate import validate, validated
from regft_core.settings.yaml_paths import METHODS, find, missing, read

#: The task whose rows a phase trains on (None: the cell's own) -> ``params.yaml`` as that task changes it.
SharedFor = Callable[[str | None], Document]
Options = tuple[tuple[str, BaseModel], ...]
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

    def knows(self, name: str) -> bool:
        """Whether there is such an arm: a file, an arm with ``base``, or a control that an arm declares."""
        found = find(self.root, METHODS, name) or self.derivation(name)
        return found is not None or self.base(name) != name

    def derivation(self, name: str) -> tuple[str, Change] | None:
        """(arm, change) of a control that an arm declares; None for any other name."""
        if name not in self._derived:
            self._derived[name] = None  # asked for again meanwhile, it is no control
            if find(self.root, METHODS, name) is None:
                # Every way to read the name as that of a control, the longest arm first.
                cuts = [(name[:at], name[at + 1 :]) for at in range(len(name) - 2, 0, -1) if name[at] == "_"]
                arms = ((arm, end) for arm, end in cuts if is_name(arm) and self.knows(arm))
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
        """Return the file, or the control of an arm, before the layers of a name; None: neither. Raises ConfigError."""
        if name not in self._files:
            file = read(self.root, METHODS, name)
            self._files[name] = file and in_small(file, self.settings)
        if self._files[name] is None and (derivation := self.derivation(name)) is not None:
            arm, change = derivation
            place = self.document(arm, task)
            return flipped(place, arm, change) if place is not None else None
        return self._files[name]

    def document(self, name: str, task: str | None = None) -> Document | None:
        """A method's file with its layers, on a task if one is given. None: no such arm. Raises ConfigError."""
        base = self.base(name)
        file = self.source(base, task)
        if file is None:
            return None
        document = file
        if base != name:
            # The description and the relatives of the base are not those of its arm, which is a variant of the base.
            data = {key: value for key, value in file.data.items() if key not in _OF_THE_FILE}
            own = {"description": f"{base} with settings of its own", **data, "variant_of": [base]}
            document = replace(file, data=own)
        document = lay(document, self.params, ("method_settings", name), skip=("base",))
        if task is not None:
            document = lay(document, self.params, ("task_settings", task, "methods", name))
        return _with_own_sources(document, file)

    def build(
        self,
        name: str,
        document: Document | None = None,
        task: str | None = None,
        trail: tuple[str, ...] = (),
        *,
        tuned: Document | None = None,
    ) -> Method:
        """Return the method that ``document`` (by default its own) describes, on a task if one is given.

        ``trail``: methods whose compute is being matched, outermost first; ``tuned``: values of the shared protocol.
        Raises ConfigError with everything that is wrong with it.
        """
        document = document or self.document(name, task)
        if document is None:
            raise ConfigError([missing(self.root, METHODS, name, self.params, ())])
        config, problems = validated(MethodConfig, document), list[Problem]()
        phases = _PhaseBuilder(self, name, document, task, trail, tuned, problems).phases(config)
        problems += self._unknown_names(name, config, document)
        if problems:
            raise ConfigError(problems)
        derivation = self.derivation(self.base(name)) if config.control_for else None
        if derivation is None:
            return Method(name, config, phases)
        return Method(name, config, phases, derivation[0], derivation[1].settings)

    def _unknown_names(self, name: str, config: MethodConfig, document: Document) -> Iterator[Problem]:
        """Yield relatives that are no methods, and controls and sources of what the file does not set."""
        for key in ("control_for", "controlled_by", "variant_of", "combines"):
            for i, target in enumerate(getattr(config, key)):
                at = (key, i) if (key, i) in document.places else (key,)
                if target == name:
                    hint = "name the method it belongs to"
                    yield document.problem("refers-to-itself", at, f"a method cannot be in its own '{key}'", hint)
                elif not self.knows(target):
                    yield missing(self.root, METHODS, target, document, at)
        for end in config.controls:
            if not applies(document.data["controls"][end], document.data):
                present = {phase: listing(part) for phase, part in regularisers_of(document.data)}
                hint = "; ".join(f"phase {phase}: {present.get(phase, 'none')}" for phase in config.by_phase())
                message = "changes a phase, or takes a regulariser away, that this method does not have"
                yield document.problem("control-unfit", ("controls", end), message, hint)
        known = paths(document.data)
        for path in config.sources:
            if path not in known:
                hint = suggestion(path, known)
                yield document.problem("unknown-source", ("sources", path), "this file sets no such value", hint)

    def settings_of(self, method: Method, *, acting: bool = False) -> dict[str, Any]:
        """See :func:`derived.settings_of`."""
        return settings_of(method, self.registry, acting=acting)


@dataclass(frozen=True)
class _PhaseBuilder:
    builder: MethodBuilder
    name: str
    document: Document
    task: str | None
    trail: tuple[str, ...]
    tuned: Document | None
    problems: list[Problem]

    def phases(self, config: MethodConfig) -> tuple[Phase, ...]:
        """Return the phases; those without a problem where there are some."""
        phases: list[Phase] = []
        names = list(config.by_phase())
        for name, phase in config.by_phase().items():
            path, earlier = config.path(name), names[: names.index(name)]
            if phase.method is not None:
                try:
                    phases += _lent(self._other(phase.method, (*path, "method")), name)
                except ConfigError as error:
                    self.problems.extend(error.problems)
                continue
            options = self._options(phase.regularisers, name, earlier, path)
            start = ["checkpoint", *earlier][-1] if phase.start == "previous" else phase.start
            training = self._protocol(path, phase.data.task)
            if training is not None:
                explicit = {key: getattr(training, key) for key in phase.training if key != "steps_factor"}
                if "dropout" in explicit:
                    explicit["dropout"] = DropoutConfig.model_validate(phase.training["dropout"])
                model: dict[str, Any] = dict(phase.model or {})  # type: ignore[arg-type]
                settled = name, phase.data, start, phase.repeat, phase.seed, options, training, explicit
                phases.append(Phase(*settled, model, refit=phase.refit))
        return tuple(phases)

    def _protocol(self, path: KeyPath, rows: str | None) -> TrainingConfig | None:
        """Return the protocol of a phase, whose ``rows`` may be those of another task; None where a value is wrong."""
        shared = self.builder.shared(rows or self.task)
        shared = shared if self.tuned is None else lay(shared, self.tuned)
        laid = lay(shared, self.document, (*path, "training"), "training")
        training, wrong = validate(PhaseTraining, laid, ("training",))
        self.problems.extend(wrong)
        if training is None:
            return None
        try:
            factor = training.steps_factor
            return scaled(training, self._factor(factor.match, training) if isinstance(factor, MatchConfig) else factor)
        except ConfigError as error:
            self.problems.extend(error.problems)
        except ValueError as error:
            at, hint = (*path, "training", "steps_factor"), "change it, or the epochs that it multiplies"
            self.problems.append(self.document.problem("bad-length", at, str(error), hint))
        return None

    def _options(self, names: Iterable[str], phase: str, earlier: Collection[str], path: KeyPath) -> Options:
        """Return the validated options of the regularisers that stand below ``path``, by name."""
        options, registry = list[tuple[str, BaseModel]](), self.builder.registry
        for name in names:
            at = (*path, "regularisers", name)
            if name not in registry:
                message, hint = f"unknown regulariser '{name}'", suggestion(name, sorted(registry), "there are")
                self.problems.append(self.document.problem("unknown-regulariser", at, message, hint))
                continue
            try:
                values, wrong = validate(registry[name].Config, self.document, at)
            except ConfigError as broken:
                values, wrong = None, broken.problems
            self.problems.extend(wrong)
            if values is None:
                continue
            options.append((name, values))
            for needed in (one for one in registry[name].declare(values).needs if one not in earlier):
                message = f"'{name}' takes something from the phase '{needed}', which does not run before '{phase}'"
                hint = suggestion(needed, earlier, "phases before it") if earlier else "add that phase before it"
                self.problems.append(self.document.problem("phase-not-before", at, message, hint))
        return tuple(sorted(options, key=lambda item: item[0]))  # their order in the file has no meaning

    def _other(self, other: str, at: KeyPath) -> Method:
        """Return a method that this one names ``at`` a place of its document. Raises ConfigError."""
        if other in (self.name, *self.trail):
            circle = " -> ".join((*self.trail, self.name, other))
            message = f"methods name each other in a circle: {circle}"
            raise ConfigError([self.document.problem("method-in-circle", at, message, "break it")])
        place = self.builder.document(other, self.task)
        if place is None:
            raise ConfigError([missing(self.builder.root, METHODS, other, self.document, at)])
        return self.builder.build(other, place, self.task, (*self.trail, self.name))

    def _factor(self, other: str, own: TrainingConfig) -> float:
        """Return what makes a phase with the protocol ``own`` cost what another method does. Raises ConfigError."""
        at = next((path for path in self.document.places if path[-1:] == ("match",)), ())
        method, registry = self._other(other, at), self.builder.registry
        training = TrainingConfig.model_validate(self.builder.shared(self.task).data["training"])
        if not comparable(method, training, registry):
            message = (
                f"steps_factor cannot match '{other}': it trains on other rows or another encoder, fits without steps, "
                "or counts steps beside epochs, so no factor holds for every number of rows"
            )
            raise ConfigError([self.document.problem("match-incomparable", at, message, "give the factor as a number")])
        factor = method_factor(method, training, registry)
        if own.max_steps is not None:  # a step of a larger batch costs more
            factor *= training.batch_size * training.accumulation / (own.batch_size * own.accumulation)
        return factor


def _lent(method: Method, name: str) -> Iterator[Phase]:
    """Yield the phases of a method that stand in for the phase ``name``, the last under that name."""
    prefix = f"{name}-"
    for phase in method.phases:
        inner = phase.lent or Lent(method.name, phase.name, "", method.config.model)
        yield replace(
            phase,
            name=name if phase is method.finetune else prefix + phase.name,
            start=phase.start if phase.start == "checkpoint" else prefix + phase.start,
            lent=replace(inner, prefix=prefix + inner.prefix),
        )


def names_of(document: Document | None, key: str) -> list[str]:
    value = document.data.get(key) if document is not None else None
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str) and is_name(item)]


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

"""From a method's YAML to validated options, and what speaks against the method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from regft_core.config.explain import validate
from regft_core.config.method import Method, Protocol, is_name
from regft_core.config.names import listing, suggestion
from regft_core.config.schema import MethodConfig, Params, TaskConfig, TrainingConfig, TrainingOverrides
from regft_core.config.yamlio import Document, KeyPath, load_yaml
from regft_core.errors import ConfigError, Problem

METHODS = "pipelines/methods"


def build_method(
    root: Path,
    name: str,
    protocol: Protocol,
    config: MethodConfig,
    document: Document,
    listed_at: tuple[Document, KeyPath],
    registry: Mapping[str, Any],
    training: TrainingConfig | None,
) -> tuple[Method | None, list[Problem]]:
    """Validate a method's options against its regularisers.

    ``listed_at`` is where ``params.yaml`` names the method. ``config`` may be incomplete (``parts``).
    Returns the method, None when its file, its options or the shared ``training`` are wrong, and
    all problems.
    """
    problems = _check_control(root, name, config, document) if config.known("control_for") else []
    if not config.known("regularisers"):
        return None, problems
    options: list[tuple[str, BaseModel]] = []
    for i, entry in enumerate(config.regularisers):
        for regulariser in entry:
            path: KeyPath = ("regularisers", i, regulariser)
            if regulariser not in registry:
                hint = suggestion(regulariser, sorted(registry), "there are")
                problems.append(document.problem(path, f"unknown regulariser '{regulariser}'", hint))
                continue
            found, wrong = validate(registry[regulariser].Config, document, path)
            problems += wrong
            if found is not None:
                options.append((regulariser, found))
    if len(options) < len(config.regularisers) or not config.known("search"):
        return None, problems
    searching = [regulariser for regulariser, values in options if _searches(registry[regulariser], values)]
    problems += _check_placement(name, protocol, searching, config, document, listed_at)
    search: BaseModel | None = None
    if searching and config.search is not None:
        search, wrong = validate(registry[searching[0]].SearchConfig, document, ("search",))
        problems += wrong
        if search is None:
            return None, problems
    right = config.known("training") and config.training.known(*TrainingOverrides.model_fields)
    if training is None or not right:
        return None, problems
    if too_long := config.training.length_problem(training):
        problems.append(document.problem(("training", "steps_factor"), too_long, "change it, or training.epochs"))
        return None, problems
    return Method(name, protocol, config, tuple(options), search, config.training.apply(training)), problems


def _searches(regulariser: Any, options: BaseModel) -> bool:
    if getattr(regulariser, "SearchConfig", None) is None:
        return False
    decide = getattr(regulariser, "search_phase", None)
    return True if decide is None else bool(decide(options))


def _check_placement(
    name: str,
    protocol: Protocol,
    searching: list[str],
    config: MethodConfig,
    document: Document,
    listed_at: tuple[Document, KeyPath],
) -> list[Problem]:
    params, path = listed_at
    problems = []
    if searching and protocol == "finetune":
        message = f"'{name}' has a search phase (regulariser {listing(searching)})"
        problems.append(params.problem(path, message, "list it under protocols.search_finetune"))
    if not searching and protocol == "search_finetune":
        message = f"'{name}' has no search phase"
        problems.append(params.problem(path, message, "list it under protocols.finetune"))
    if searching and config.search is None:
        message = f"'search' is missing: regulariser {listing(searching)} has a search phase"
        problems.append(document.problem(("search",), message, "add 'search: {}' or its options; DVC tracks them"))
    if not searching and config.search is not None:
        message = "no regulariser of this method has a search phase, so nothing would read this section"
        problems.append(document.problem(("search",), message, "remove it, or choose options that search"))
    return problems


def _check_control(root: Path, name: str, config: MethodConfig, document: Document) -> list[Problem]:
    target = config.control_for
    if target is None:
        return []
    if target == name:
        return [document.problem(("control_for",), "a method cannot be its own control", "name the method it matches")]
    if (root / METHODS / f"{target}.yaml").is_file():
        return []
    present = sorted(p.stem for p in (root / METHODS).glob("*.yaml") if p.stem != name)
    message = f"unknown method '{target}': there is no {METHODS}/{target}.yaml"
    return [document.problem(("control_for",), message, suggestion(target, present, "methods there"))]


def check_composition(
    method: Method,
    tasks: Mapping[str, TaskConfig],
    params: Params,
    compose_check: Callable[[Method, TaskConfig, str, Params], list[str]],
    document: Document,
) -> list[Problem]:
    """What speaks against ``method`` on each of ``tasks``; what holds on all of them is said once."""
    where: dict[str, list[str]] = {}
    for name, task in tasks.items():
        for message in dict.fromkeys(compose_check(method, task, name, params)):
            where.setdefault(message, []).append(name)
    problems = []
    for message, names in where.items():
        everywhere = len(names) == len(tasks) and len(tasks) > 1
        prefix = "" if everywhere else f"on task {listing(names)}: "
        problems.append(document.problem(("regularisers",), prefix + message))
    return problems


# -------------------------------------------------------------------------------- controls


@dataclass(frozen=True)
class Control:
    """A method whose YAML says that it controls for a listed one, but which is not listed."""

    name: str
    control_for: str
    differs_by: str
    protocol: Protocol

    def __str__(self) -> str:
        differs = f" (differs by: {self.differs_by})" if self.differs_by else ""
        return (
            f"'{self.control_for}' is listed without its control '{self.name}'{differs}; add it under "
            f"protocols.{self.protocol}, or run `python -m regft_core.config controls --write`"
        )


@dataclass
class Controls:
    """Controls that are not listed, and files that could not be searched for them."""

    missing: list[Control] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def missing_controls(root: Path, listed: Mapping[str, Any]) -> Controls:
    """Find the controls of ``listed`` methods, and of those controls in turn, that are not listed."""
    controls = Controls()
    candidates: list[Control] = []
    for path in sorted((root / METHODS).glob("*.yaml")):
        if path.stem in listed:
            continue
        try:
            data = load_yaml(path, root).data
        except ConfigError as error:
            first = error.problems[0]
            controls.unreadable.append(f"{first.file} may be a control but cannot be read: {first.message}")
            continue
        target = data.get("control_for")
        if isinstance(target, str) and is_name(path.stem):
            protocol: Protocol = "search_finetune" if data.get("search") is not None else "finetune"
            candidates.append(Control(path.stem, target, str(data.get("differs_by") or ""), protocol))
    present = set(listed)
    while found := [c for c in candidates if c.control_for in present and c.name not in present]:
        controls.missing += found
        present |= {control.name for control in found}
    return controls

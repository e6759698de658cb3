"""The catalogue of shipped methods, of ``regft methods`` and the documentation: what each is, does, costs, compares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic_core import to_jsonable_python

from regft_core.hooks import compose
from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.registry import discover
from regft_core.schema.method import Method, comparable, method_factor
from regft_core.settings.layers import Setting, settings
from regft_core.settings.project import Project
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import METHODS, names

#: What a method touches, in the order of a step: by the hooks that its regularisers implement.
TOUCHES = {
    "starting weights": ["edit_weights"],
    "modules, sites or views": ["prepare"],
    "fits without steps": ["fit"],
    "learning rates": ["learning_rate_factors"],
    "batch": ["change_batch"],
    "loss": ["task_loss", "terms", "penalty"],
    "step program": ["backward"],
    "gradient": ["change_gradients", "gradient_masks", "clip_gradients"],
    "optimiser": ["build_optimizer"],
    "update": ["pull_weights", "perturb_weights"],
    "final weights": ["finish"],
    "exported weights": ["export"],
}


@dataclass(frozen=True)
class Line:
    """One method; ``facts``: phases, where it acts, its relatives, as texts without empty ones."""

    name: str
    description: str
    paper: str
    cost: float | None
    facts: Mapping[str, str]
    settings: tuple[Setting, ...]


def catalogue(root: Path) -> list[Line]:
    """Every method in ``pipelines/methods``; raises ConfigError when one of them is wrong."""
    project, registry = shipped_methods(root), discover()
    training, methods = project.params.training, project.methods

    def naming(key: str, name: str) -> str:
        return ", ".join(other for other, method in methods.items() if name in getattr(method.config, key))

    lines = []
    for name, method in methods.items():
        controls = {one.declared: one.zero for one in project.controls if one.control_for == name}
        cost = method_factor(method, training, registry) if comparable(method, training, registry) else None
        facts = {
            "phases": ", ".join(p.name + (f" x{p.members}" if p.members > 1 else "") for p in method.phases),
            "touches": ", ".join(touched(method, registry)) or _settings(method),
            "declared cost": "depends on other rows" if cost is None else f"{cost:.2f}x",
            "variant": compose.variants(method, registry) or "",
            "variants": naming("variant_of", name),
            "controls": ", ".join(control for control, zero in controls.items() if zero),
            "replacements": ", ".join(control for control, zero in controls.items() if not zero),
            "combined": naming("combines", name),
        }
        facts = {what: text for what, text in facts.items() if text}
        config, values = method.config, tuple(settings(method, registry))
        lines.append(Line(name, config.description, config.paper, cost, facts, values))
    return lines


def shipped_methods(root: Path) -> Project:
    """Return a project that lists every shipped method, on a task of pairs; raises ConfigError when one is wrong."""
    params = {
        "model": {"name": "minilm"},
        "grid": {"tasks": ["mrpc"], "sizes": [128], "seeds": [0]},
        "methods": sorted(names(root, METHODS), key=lambda name: name != "vanilla"),
        "subsample": {},
        "training": {"epochs": 4},
        "report": {},
    }
    return open_project(root, params_text=yaml.safe_dump(params, sort_keys=False), check_composition=False)


def touched(method: Method, registry: Mapping[str, type[Regulariser]]) -> list[str]:
    """Where a method's regularisers act, by their hooks; most prepare something, which is told of few."""
    touches: set[str] = set()
    for phase in method.phases:
        for entry in compose.active(compose.entries(registry, phase.regularisers)):
            places = {what for what, hooks in TOUCHES.items() if any(implements(entry.cls, hook) for hook in hooks)}
            if len(places) > 1 and "structure" not in entry.declares.edits:
                places.discard("modules, sites or views")
            touches |= places
    return [what for what in TOUCHES if what in touches]


def _settings(method: Method) -> str:
    changed = sorted({key for phase in method.phases for key in phase.explicit})
    if method.config.model:
        changed.append("model")
    return "settings: " + ", ".join(changed) if changed else ("phases" if len(method.phases) > 1 else "nothing")


def as_text(lines: Sequence[Line], *, values: bool = False) -> str:
    """The catalogue for a terminal: a block a method; ``values``: with its settings and their sources."""
    blocks = []
    for line in lines:
        told = [f"{what}: {text}" for what, text in line.facts.items()]
        for one in line.settings if values else ():
            value = json.dumps(to_jsonable_python(one.value)).strip('"')
            told.append(f"{one.path} = {value}  [{one.source or 'no source'}]")
        paper = f" ({line.paper})" if line.paper else ""
        blocks.append("\n    ".join([f"{line.name}: {line.description}{paper}", *told]))
    return "\n".join(blocks)

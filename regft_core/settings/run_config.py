"""The settings of one cell as a file that ``regft run --config`` reads: ``params``, ``methods``, ``tasks``.

``params`` is a ``params.yaml`` with this cell alone. ``methods`` and ``tasks`` hold the YAML files that its settings
come from, so that the run is reproduced after these were edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from regft_core.disk.canonical import canonical_json, sha256_text
from regft_core.disk.files import remove
from regft_core.schema import Name, StrictModel
from regft_core.schema.methods import SECTIONS
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.document import Document, leaves, load_yaml, yaml_text
from regft_core.settings.layers import lay
from regft_core.settings.preset import (
    FOLDER,
    LINKED,
    folder_text,
    in_small,
    link,
    make_folder,
    with_moved_encoders,
    write_changed,
)
from regft_core.settings.project import Cell, Project
from regft_core.settings.validate import validated
from regft_core.settings.yaml_paths import METHODS, OVERRIDE, TASKS, ships, task_file

#: Sections of ``params.yaml`` on which a run depends, beside those that name it.
_SECTIONS = ("regft", "model", "subsample", "training", "small_scale")


class RunConfig(StrictModel):
    """``config.yaml`` of a run; ``params`` is checked where its folder is opened."""

    params: dict[str, Any]
    methods: dict[Name, dict[str, Any]]
    tasks: dict[Name, dict[str, Any]]


def run_config(project: Project, cell: Cell) -> str:
    """Return the content of ``config.yaml`` of a cell, with all seeds of the grid. The order of phases counts."""
    builder, declared = project.builder, project.builder.params.data
    phases = project.method(cell.method, cell.task).phases
    listed = list(dict.fromkeys([cell.method, *(phase.lent.method for phase in phases if phase.lent)]))
    # These files have all layers in them, so a control is written as it is resolved and not derived a second time.
    methods = {arm: dict(document.data) for arm, document in sorted(_with_named(builder, listed, cell.task).items())}
    tasks = {cell.task, *(phase.data.task for phase in phases)}
    params = {name: declared[name] for name in _SECTIONS if name in declared}
    if "small_scale" in params:
        params["small_scale"] = params["small_scale"] | {"cut": True}  # ``methods`` and ``tasks`` are, and what was set
    settings = (declared.get("task_settings") or {}).get(cell.task) or {}
    params["task_settings"] = {cell.task: {k: v for k, v in settings.items() if k not in ("sizes", "methods")}}
    if trials := project.trials(cell.method):
        tuning = {name: value for name, value in declared["tuning"].items() if name not in ("values", "trials")}
        params["tuning"] = {**tuning, "methods": {cell.method: trials}}
    sets = declared.get("ood", "all")
    if isinstance(sets, list):
        sets = [name for name in sets if name in project.tasks[cell.task].ood] or "none"
    params |= {
        "ood": sets,
        "methods": listed,
        "grid": {"tasks": [cell.task], "sizes": [cell.size], "seeds": list(project.params.grid.seeds)},
        "report": {"reference": cell.method},
    }
    read = {name: _task(project, name, cell) for name in sorted(filter(None, tasks))}
    return yaml_text({"params": params, "methods": methods, "tasks": read})


def _with_named(builder: MethodBuilder, listed: Iterable[str], task: str) -> dict[str, Document]:
    """Return arms with those that they are controls of, have phases of or match the compute of, and so on."""
    arms, waiting = dict[str, Document](), [*listed]
    while waiting:
        for arm in builder.behind(waiting.pop()) - arms.keys():
            if (document := builder.document(arm, task)) is not None:
                arms[arm], found = document, leaves({key: document.data.get(key) for key in SECTIONS})
                names = (("steps_factor", "match"), ("phases", "method"))  # phases.PHASE.method
                waiting += [value for path, value in found if path[-2:] == names[0] or path[::2] == names[1]]
    return arms


def _task(project: Project, name: str, cell: Cell) -> dict[str, Any]:
    """Return the file of a task in small where that is asked for; of another than the cell's with its settings."""
    params, file = project.builder.params, project.documents[task_file(name)]
    for section in ("training", "model"):
        file = lay(file, in_small(file, project.params), (section,), section)
    return (file if name == cell.task else lay(file, params, ("task_settings", name), skip=("methods", "sizes"))).data


def of_seed(config: str, seed: int) -> str:
    data = yaml.load(config, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    data["params"]["grid"]["seeds"] = [seed]
    return yaml_text(data)


def lay_out_config(root: Path, file: Path) -> Path:
    """Make the folder below ``presets/`` in which a ``config.yaml`` runs, or bring it up to date; return it."""
    document = load_yaml(file, file.parent)
    config = validated(RunConfig, document)
    folder = root / FOLDER / f"{next(iter(config.methods), 'config')}-{sha256_text(canonical_json(document.data))[:8]}"
    for place, declared in ((METHODS, config.methods), (TASKS, config.tasks)):
        remove(folder / place)
        for path in (root / place).glob("*.yaml"):
            if path.stem not in declared:
                link(folder / place / path.name, path)
        for name, content in declared.items():
            content = ({OVERRIDE: True} if ships(place, name) else {}) | with_moved_encoders(root, content)
            write_changed(folder / place / f"{name}.yaml", yaml_text(content))
    return make_folder(root, folder, folder_text(root, config.params), set(LINKED) - {METHODS, TASKS})

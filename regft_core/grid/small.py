"""``--scale small``: the folder of a preset in miniature, ``presets/<name>.small``.

Its tasks are files of a few rows: real ones where they are on this disk (files of the project, or fetched), else
generated stand-ins under the name ``<task>_standin``. Encoder, seeds, steps and lengths are cut (``config/small.py``).
``small_scale`` in its ``params.yaml`` says what differs, and marks every result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from regft_core.data.prepare import declaration_of, resolve_ood
from regft_core.data.small import Wanted, is_here, small_rows
from regft_core.errors import ConfigError, Problem
from regft_core.evaluate.analyses import enabled, tasks_read
from regft_core.io.files import remove
from regft_core.models.aliases import ALIASES
from regft_core.models.source import layers_of
from regft_core.names import listing, plural
from regft_core.runs.project import open_project
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.method import other_tasks
from regft_core.schema.tasks import TaskConfig
from regft_core.settings import small
from regft_core.settings.files import METHODS, OVERRIDE, TASKS, method_file, names_in, ships, task_file
from regft_core.settings.preset import (
    FOLDER,
    LINKED,
    changed,
    folder_text,
    link,
    make_folder,
    preset_data,
    preset_file,
    write_changed,
)
from regft_core.settings.project import Project

SUFFIX = ".small"
STAND_IN = "_standin"
_TRAIN, _DEV = "train", "dev"


@dataclass
class _SmallTasks:
    """Tasks in small: file -> rows, task -> YAML, new names, and task -> sets, ``""`` for its own rows."""

    files: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    real: dict[str, list[str]] = field(default_factory=dict)
    generated: dict[str, list[str]] = field(default_factory=dict)


def lay_out_small(root: Path, name: str, changes: Iterable[str] = ()) -> Path:
    """Make (or bring up to date) the folder of a preset in small; returns it.

    ``changes`` are made before the preset is cut, and once more after, so that they win over the cuts; the rows stay
    few.

    Raises ConfigError for a preset or changes that are wrong, DataError for rows that cannot be read.
    """
    changes, file = list(changes), preset_file(root, name)
    before = preset_data(root, name, changes)
    project = open_project(root, file, yaml.safe_dump(before, sort_keys=False))
    printed, given = preset_data(root, name), before["model"]["name"]
    encoder = small.ENCODER if given == printed["model"]["name"] else given
    if encoder not in ALIASES and not (root / encoder).is_dir():
        message = f"'{encoder}' is not an encoder on this disk, and --scale small fetches none"
        hint = f"give an alias ({', '.join(ALIASES)}) or a directory, or leave it out"
        raise ConfigError([Problem("model-missing", file, 0, "model.name", message, hint)])
    depth, of = layers_of(EncoderConfig(name=encoder), root), printed["model"]["name"]
    cut = changed(
        _with_methods(small.shrunk(before, depth, of), project, depth, of),
        [c for c in changes if not c.startswith(_OF_ROWS)],
        file,
    )
    tasks = _small_tasks(root, project)
    data = small.renamed(cut, tasks.names)
    data.pop("ood", None)
    _follow_tasks(data, project, tasks)
    data["small_scale"] = {"preset": name, "changes": _said(printed, data, project, tasks)}
    folder = make_folder(
        root,
        root / FOLDER / f"{name}{SUFFIX}",
        f"# Made from {file} by `regft preset {name} --scale small`; an edit here is lost.\n" + folder_text(root, data),
        [file for file in LINKED if file not in (TASKS, "data")],
    )
    for path, text in tasks.files.items():
        write_changed(folder / "data" / path, text)
    for task, declared in tasks.tasks.items():
        if (folder / task_file(task)).is_symlink():
            remove(folder / task_file(task))
        declared = {OVERRIDE: True, **declared} if ships(TASKS, task) else declared
        write_changed(folder / task_file(task), yaml.safe_dump(declared, sort_keys=False, allow_unicode=True))
    # Printed tables name the project's own tasks, which must be there to be named.
    for name_of_other in {*names_in(root / TASKS), *names_in(folder / TASKS)} - tasks.tasks.keys():
        remove(folder / task_file(name_of_other))
        if (root / task_file(name_of_other)).is_file():
            link(folder / task_file(name_of_other), root / task_file(name_of_other))
    return folder


def _with_methods(data: dict[str, Any], project: Project, depth: int, of: str) -> dict[str, Any]:
    """``data`` with what is cut of the methods' own files; what the preset sets of a method stands over it."""
    own = {name: project.documents[method_file(name)].data for name in project.methods if ships(METHODS, name)}
    cuts = {name: cut for name, method in own.items() if (cut := small.cuts(method, depth, of))}
    return {**data, "method_settings": small.over(cuts, data.get("method_settings") or {})} if cuts else data


#: Changes that say which rows are taken: they are made before the cut alone.
_OF_ROWS = ("grid.tasks", "grid.sizes", "ood", "task_settings", "report.averages")


def _small_tasks(root: Path, project: Project) -> _SmallTasks:
    """The tasks of the grid with what judges them, and those that a phase or an evaluation reads."""
    found = _SmallTasks()
    trained = other_tasks(project.methods.values())
    for name in dict.fromkeys([*project.params.grid.tasks, *trained, *tasks_read(project.params)]):
        _add_task(root, project, name, found)
    return found


def _add_task(root: Path, project: Project, name: str, found: _SmallTasks) -> None:
    task = project.tasks[name]
    own, rows = declaration_of(task), small.TRAIN_ROWS
    splits = {_TRAIN: Wanted(name, task.source, str(task.splits.train), own, rows, training=True)}
    if isinstance(task.splits.dev, str):  # else it is drawn from the training rows
        splits[_DEV] = Wanted(name, task.source, task.splits.dev, own, small.JUDGED_ROWS, training=False)
    real = all(is_here(root, one) for one in splits.values())
    new = name if real else f"{name}{STAND_IN}"
    (found.real if real else found.generated).setdefault(name, []).append("")
    found.names[name, ""] = new
    for split, one in splits.items():
        found.files[f"{new}/{split}.jsonl"] = small_rows(root, one, real)
    declared = _declared(project, name, task, new)
    for judge in task.ood if name in project.params.grid.tasks else ():
        resolved = resolve_ood(name, judge, project.tasks)
        one = Wanted(judge, resolved.source, resolved.split, resolved.declaration, small.JUDGED_ROWS, training=False)
        here = is_here(root, one)
        (found.real if here else found.generated).setdefault(name, []).append(judge)
        shown = found.names[name, judge] = judge if here else f"{judge}{STAND_IN}"
        file = f"{new}/ood-{shown}.jsonl"
        found.files[file] = small_rows(root, one if here else replace(one, split="ood"), here)
        labels = resolved.declaration.labels
        declared["ood"][shown] = {
            "source": {"kind": "files"},
            "split": file,
            **({"labels": list(labels)} if labels else {}),
            **({"label_map": resolved.label_map} if resolved.label_map else {}),
        }
    found.tasks[new] = declared


def _declared(project: Project, name: str, task: TaskConfig, new: str) -> dict[str, Any]:
    """The YAML of a task in small, without what judges it."""
    written = project.documents[task_file(name)].data
    kept = ("kind", "labels", "range", "metrics", "primary", "positive_label", "keyword_segment")
    pair = {"text_pair": "text_pair"} if task.columns.text_pair is not None else {}
    what = "a few rows of" if new == name else "generated rows instead of"
    return {
        "description": f"{what} {name}: {task.description}",
        **{key: written[key] for key in kept if key in written},
        "source": {"kind": "files"},
        "splits": {
            _TRAIN: f"{new}/{_TRAIN}.jsonl",
            _DEV: f"{new}/{_DEV}.jsonl" if isinstance(task.splits.dev, str) else written["splits"][_DEV],
        },
        "columns": {"text": "text", **pair, "label": "label"},
        **{key: small.capped(written[key]) for key in ("training", "model") if key in written},
        "ood": {},
    }


def _follow_tasks(data: dict[str, Any], project: Project, tasks: _SmallTasks) -> None:
    """Let phases and evaluations that read another task's rows take the stand-in's."""
    for name, (evaluation, options) in enabled(project.params).items():
        if others := evaluation.other_tasks(options):
            data["evaluations"][name][evaluation.tasks] = [tasks.names[task, ""] for task in others]
    for name, method in project.methods.items():
        for phase in method.phases:
            if phase.data.task and (new := tasks.names[phase.data.task, ""]) != phase.data.task:
                own = data.setdefault("method_settings", {}).setdefault(name, {}).setdefault("phases", {})
                own.setdefault(phase.name, {}).setdefault("data", {})["task"] = new


def _sets(found: Mapping[str, Iterable[str]]) -> str:
    """``mnli, judged by hans, snli; sick of rte``: the sets of each task, its own rows first."""
    parts = []
    for task, (first, *others) in found.items():
        if first:
            parts.append(f"{listing([first, *others])} of {task}")
        else:
            parts.append(f"{task}, judged by {listing(others)}" if others else task)
    return "; ".join(parts)


def _said(printed: dict[str, Any], data: dict[str, Any], project: Project, tasks: _SmallTasks) -> list[str]:
    """What differs from the preset, in sentences."""
    grid = data["grid"]
    seeds, full = plural(len(grid["seeds"]), "seed"), plural(len(printed["grid"]["seeds"]), "seed")
    said = [
        f"Encoder {data['model']['name']} in place of {printed['model']['name']}.",
        f"At most {small.TRAIN_ROWS} training rows and {small.JUDGED_ROWS} rows of each other set, {seeds} (the "
        f"preset: {full}), at most {plural(small.CAPS['epochs'], 'epoch')}, two tuning trials and "
        f"{data['model'].get('max_length', small.CAPS['max_length'])} tokens of each input.",
    ]
    if tasks.generated:
        said.append(f"Generated rows, because the real ones are not on this disk: {_sets(tasks.generated)}.")
    if tasks.real:
        said.append(f"Real rows, a few of each: {_sets(tasks.real)}.")
    if project.left_out:
        said.append(f"Left out: {_sets(project.left_out)}.")
    if any(project.tasks[task].submission is not None for task in project.params.grid.tasks):
        said.append("No prediction files for a benchmark's server.")
    return said

"""Before a run: what is wrong with a project, what would be trained, which versions are installed."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sized
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import fill

from regft_core.errors import ConfigError
from regft_core.grid.data import skew_warnings
from regft_core.hooks.registry import discover
from regft_core.names import listing, plural
from regft_core.runs.work import Work
from regft_core.settings.cost import table
from regft_core.settings.layers import all_sizes, settings_lines
from regft_core.settings.preset import lay_out
from regft_core.settings.project import Project, budget_lines, cells
from regft_core.settings.read_project import open_project

from .common import COLUMNS, PRESET, argument, command, flag, open_preset, refuse_contradictions


def project_or_preset(root: Path, preset: str | None) -> Project:
    """Return the project, or that of a preset's folder, which is brought up to date."""
    if preset is None:
        return open_project(root)
    open_preset(root, preset)  # a mistake is reported with the preset's own lines
    return open_project(lay_out(root, preset))


@command(PRESET, flag("--json", "one JSON object, for scripts"))
def check(root: Path, arguments: argparse.Namespace) -> None:
    """Check every YAML file that the job uses, and list all errors.

    Takes under a second and trains nothing. For a valid project it prints one
    line with the number of methods, tasks and runs.

    examples
      regft check
      regft check --preset hype_table3

    next: regft plan, which shows what would be trained and how long it takes
    """
    try:
        project = project_or_preset(root, arguments.preset)
    except ConfigError as error:
        if not arguments.json:
            raise
        print(json.dumps({"valid": False, "problems": [asdict(problem) for problem in error.problems]}, indent=1))
        sys.exit(error.exit_code)
    warn(project)
    grid, count = project.params.grid, len(cells(project))
    axes: dict[str, Sized] = {"method": project.methods, "task": grid.tasks, "size": all_sizes(project.params)}
    counts = " x ".join(plural(len(values), name) for name, values in axes.items())
    runs = f"{plural(count * len(grid.seeds), 'run')} ({plural(len(grid.seeds), 'seed')})"
    line = f"configuration is valid: {counts} = {plural(count, 'cell')}, {runs}"
    print(json.dumps({"valid": True, "says": line}) if arguments.json else line)


def warn(project: Project) -> None:
    registry = discover()
    for name in registry:
        try:
            registry[name]
        except ConfigError as error:
            for problem in error.problems:
                print(f"warning: left out: {problem}", file=sys.stderr)
    for warning in (*project.warnings, *skew_warnings(project)):
        print(f"warning: {warning}", file=sys.stderr)


def _positive(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of points, for instance 1.0")


@command(
    argument(
        "--detect",
        "points: how many seeds detect a true difference of this size, by task and pair, from the spread so far",
        type=_positive,
    ),
    PRESET,
    flag("--json", "the rows as JSON, for scripts"),
)
def plan(root: Path, arguments: argparse.Namespace) -> None:
    """Show what would be trained and how long it takes.

    Trains nothing. Prints a line for each cell, the time of what is still to
    train, and how many texts max_length cuts.

    examples
      regft plan
      regft plan --detect 1   how many seeds detect a difference of 1 point

    next: regft run
    """
    from regft_core.grid.cell_keys import grid_rows

    refuse_contradictions([(arguments.json and arguments.detect, "--json has the rows alone")], "leave --detect out")
    project = project_or_preset(root, arguments.preset)
    warn(project)
    rows = grid_rows(project.snapshot())
    if arguments.json:
        print(json.dumps([asdict(row) | {"to_train": row.to_train} for row in rows], indent=1))
        return
    from regft_core.grid.time import estimate

    time = estimate(project, rows)
    parts = [table(rows, time.cells.get), time.line()]
    if changed := settings_lines(project):
        parts.append("\n".join(["changed in the shared settings (weaker ones first)", *changed]))
    if project.params.tuning is not None:
        parts.append("\n".join(budget_lines(project.params.tuning, project.methods.values())))
    parts.append("\n".join(_lengths(project)))
    if arguments.detect is not None:
        from regft_core.grid.cell_keys import evaluated_cells, read_failures
        from regft_core.report import planner, project_inputs

        failures, work = read_failures(project.root), Work(project.root)
        every, done = cells(project), evaluated_cells(project, failures)
        known = {(cell.task, cell.size) for cell in done if cell.method == project.params.report.reference}
        done = [cell for cell in done if (cell.task, cell.size) in known]
        run_seeds = [{run.seed for run in work.finetune(cell).runs} for cell in done]
        seeds = [seed for seed in project.params.grid.seeds if all(seed in had for had in run_seeds)]
        inputs = replace(project_inputs(project, done or every, failures), seeds=seeds)
        parts.append(planner.table(planner.needs(inputs, time.runs.get, arguments.detect), arguments.detect))
        if late := [cell.directory for cell in every if cell not in done and cell.directory not in failures]:
            parts.append(f"no spread seen yet, as it has not run: {listing(late)}")
    lines = "\n\n".join(filter(None, parts)).splitlines()
    print("\n".join(line if len(line) <= COLUMNS else fill(line, COLUMNS, break_long_words=False) for line in lines))


def _lengths(project: Project) -> Iterator[str]:
    from regft_core.data import lengths
    from regft_core.grid.measured_lengths import known_lengths

    every = {task: known_lengths(project, task) for task in project.params.grid.tasks}
    measured = {task: found for task, found in every.items() if found is not None}
    shared = project.params.model
    if measured:
        others = [f"{project.model(task).max_length} on {task}" for task in measured if project.model(task) != shared]
        yield f"tokens per row at max_length {', '.join([str(shared.max_length), *others])}"
        yield lengths.table(measured)
    if missing := [task for task in every if task not in measured]:
        yield f"token lengths of {', '.join(missing)}: known after `dvc repro subsample`"
    for task, found in measured.items():
        for text in lengths.warnings(task, found):
            print(f"warning: {text}", file=sys.stderr)


@command(flag("--json", "one JSON object: name -> version"))
def version(root: Path, arguments: argparse.Namespace) -> None:
    """Print the versions of regft, Python and the main packages.

    Include them in a report of an error.

    examples
      regft version
      regft version --json

    next: regft check
    """
    from regft_core.runs.environment import versions

    found = versions()
    print(json.dumps(found, indent=1) if arguments.json else "\n".join(map(" ".join, found.items())))

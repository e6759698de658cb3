"""Validate the project, show what would run, list missing controls; none of it trains.

regft check                   is the configuration valid?
regft plan              what would be trained, and how long?
regft plan --detect 1   and how many seeds find a difference of 1 point, from the spread so far?
regft controls --write  add the controls of the listed methods
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from regft_core import output
from regft_core.errors import ConfigError, RegftError
from regft_core.grid.prepared import size_warnings, skew_warnings, undrawn
from regft_core.names import plural
from regft_core.runs.project import open_project
from regft_core.settings.controls import with_controls, write_controls
from regft_core.settings.cost import PlanRow, table
from regft_core.settings.grid import Cell, cells
from regft_core.settings.layers import all_sizes
from regft_core.settings.preset import lay_out, preset_file
from regft_core.settings.project import Project
from regft_core.settings.provenance import settings_lines
from regft_core.settings.store_path import store_path
from regft_core.settings.trial_values import budget_lines

from .common import called_as


def validate(root: Path, params_file: str) -> str:
    """One line that says what a valid project amounts to."""
    project = open_project(root, params_file)
    _warn(project)
    grid = project.params.grid
    count, seeds = len(cells(project)), len(grid.seeds)
    return (
        f"configuration is valid: {plural(len(project.methods), 'method')} x {plural(len(grid.tasks), 'task')} x "
        f"{plural(len(all_sizes(project.params)), 'size')} = {plural(count, 'cell')}, {plural(count * seeds, 'run')} "
        f"({plural(seeds, 'seed')})"
    )


def plan(root: Path, params_file: str, detect: float | None = None, *, as_json: bool = False) -> str:
    """The dry run's table, or its rows as JSON; with ``detect`` how many seeds that difference takes as well."""
    from regft_core.grid.cached import grid_rows
    from regft_core.grid.time import estimate, gpu_line
    from regft_core.runs.code import one_moment

    project = open_project(root, params_file)
    _warn(project)
    with one_moment():
        rows = grid_rows(project)
    if as_json:
        return json.dumps([asdict(row) | {"to_train": row.to_train, "in_grid": row.in_grid} for row in rows], indent=1)
    time = estimate(project, rows)
    parts = [table(rows, time.cells.get), f"{time.line()}\n{gpu_line(project, rows)}", _lengths(project)]
    if project.params.tuning is not None:
        parts.insert(2, "\n".join(budget_lines(project.params.tuning, project.methods.values())))
    if changed := settings_lines(project, params_file):
        parts.insert(2, "\n".join(["changed in the shared settings (weaker ones first)", *changed]))
    if not_drawn := undrawn(project):
        parts.insert(1, not_drawn)
    if detect is not None:
        parts.append(_seeds(project, rows, time.runs.get, detect))
    return "\n\n".join(parts)


def _seeds(
    project: Project, rows: Sequence[PlanRow], seconds: Callable[[Cell], float | None], difference: float
) -> str:
    """How many seeds every pair of arms takes to show ``difference``."""
    from regft_core.report import interim, planner

    remembered = store_path(project.root, project.params) / interim.FILE
    return planner.table(planner.needs(project, rows, seconds, difference, remembered), difference)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a positive number; give a difference in points, for instance 1.0"
        )
    return value


def _lengths(project: Project) -> str:
    """Tokens of the texts of every prepared task, and how many rows ``max_length`` cuts."""
    from regft_core.data import lengths
    from regft_core.grid.lengths import known_lengths, modes

    every = {task: known_lengths(project, task) for task in project.params.grid.tasks}
    found = {task: measured for task, measured in every.items() if measured is not None}
    shared = project.params.model
    parts = []
    if found:
        own = [f"{project.model(task).max_length} on {task}" for task in found if project.model(task) != shared]
        parts = [f"tokens per row at max_length {', '.join([str(shared.max_length), *own])}", lengths.table(found)]
    if missing := [task for task in every if task not in found]:
        parts.append(f"token lengths of {', '.join(missing)}: known after `dvc repro subsample`")
    for task, measured in found.items():
        for text in lengths.warnings(task, measured, modes(project)):
            print(f"warning: {text}", file=sys.stderr)
    return "\n".join(parts)


def controls(root: Path, params_file: str, write: bool) -> str:
    """The controls that are missing; with ``write`` they are added to the params file."""
    project = open_project(root, params_file)
    found = project.controls
    without = [
        f"no control is declared for '{name}': no method tells what its ingredient does; "
        f"write a method with 'control_for: {name}'"
        for name in found.without
    ]
    if not found.missing:
        if found.present:
            pairs = ", ".join(f"{method} ({control})" for method, control in found.present)
            listed = f"every control that is declared for a listed method is listed: {pairs}"
        else:
            listed = "no listed method has a declared control"
        return "\n".join([*without, listed])
    if not write:
        add = "Add them under methods, or run `regft controls --write`."
        return "\n".join([*without, *(str(control) for control in found.missing), add])
    # The controls' own files were not checked so far: nothing lists them. Check before writing.
    text = (root / params_file).read_bytes().decode("utf-8-sig")
    open_project(root, params_file, with_controls(text, found.missing, params_file))
    write_controls(root, found.missing, params_file)
    added = (f"  {control.name} (control for {control.control_for})" for control in found.missing)
    return "\n".join([f"added to {params_file}:", *added])


def _warn(project: Project) -> None:
    from regft_core.hooks.registry import discover

    for error in discover().broken.values():
        for problem in error.problems:
            print(f"warning: left out: {problem}", file=sys.stderr)
    for warning in (*project.warnings, *size_warnings(project), *skew_warnings(project)):
        print(f"warning: {warning}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, 2 for a wrong configuration."""
    output.guard()
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--root", type=Path, default=argparse.SUPPRESS, help="project root (default: here)")
    shared.add_argument("--params", default=argparse.SUPPRESS, help="another file instead of params.yaml")
    shared.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="JSON, for scripts")
    shared.add_argument("--preset", default=argparse.SUPPRESS, help="a preset, as `regft preset` runs it")
    parser = argparse.ArgumentParser(called_as("python -m stages.config"), description=__doc__, parents=[shared])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("check", aliases=["validate"], parents=[shared], help="check everything (the default)")
    planned = commands.add_parser(
        "plan", parents=[shared], help="what would be trained, and how many rows max_length cuts"
    )
    planned.add_argument(
        "--detect",
        type=_positive,
        metavar="POINTS",
        help="the seeds that a true difference of this size takes per task and pair, from the spread seen so far",
    )
    missing = commands.add_parser("controls", parents=[shared], help="controls of listed methods that are not listed")
    missing.add_argument("--write", action="store_true", help="add them to the params file")
    given = parser.parse_args(arguments)
    root, params_file = getattr(given, "root", Path()), getattr(given, "params", "params.yaml")
    try:
        if (preset := getattr(given, "preset", None)) is not None:
            params_file = preset_file(root, preset)
            if given.command != "controls":  # which may write to the preset itself
                open_project(root, params_file)  # a mistake is said with the preset's own lines
                root, params_file = lay_out(root, preset), "params.yaml"
        if given.command == "plan":
            print(plan(root, params_file, given.detect, as_json=getattr(given, "json", False)))
        elif given.command == "controls":
            print(controls(root, params_file, given.write))
        else:
            said = validate(root, params_file)
            print(json.dumps({"valid": True, "says": said}) if getattr(given, "json", False) else said)
    except RegftError as error:
        if getattr(given, "json", False) and isinstance(error, ConfigError):
            print(json.dumps({"valid": False, "problems": [asdict(problem) for problem in error.problems]}, indent=1))
        else:
            print(f"regft: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

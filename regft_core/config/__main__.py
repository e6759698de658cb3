"""Validate the project, show what would run, list missing controls; none of it trains.

python -m regft_core.config                   is the configuration valid?
python -m regft_core.config plan              what would be trained, and how long?
python -m regft_core.config controls --write  add the controls of the listed methods
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from regft_core.config.controls import with_controls, write_controls
from regft_core.config.find_controls import find_controls
from regft_core.config.grid import cells
from regft_core.config.load import Project
from regft_core.config.plan import plan_rows, table
from regft_core.errors import RegftError
from regft_core.phases.project import open_project


def validate(root: Path, params_file: str) -> str:
    """One line that says what a valid project amounts to."""
    project = open_project(root, params_file)
    _warn(project)
    grid = project.params.grid
    count = len(cells(project))
    return (
        f"configuration is valid: {len(project.methods)} methods x {len(grid.tasks)} tasks x {len(grid.sizes)} sizes"
        f" = {count} cells, {count * len(grid.seeds)} runs ({len(grid.seeds)} seeds)"
    )


def plan(root: Path, params_file: str) -> str:
    """The dry run's table."""
    from regft_core.hooks.registry import discover
    from regft_core.phases.finetune import cached_seeds
    from regft_core.runs.fingerprint import one_moment

    project = open_project(root, params_file)
    _warn(project)
    with one_moment():
        planned = table(plan_rows(project, discover(), cached=lambda cell: cached_seeds(root, project, cell)))
    return f"{planned}\n\n{_lengths(project)}"


def _lengths(project: Project) -> str:
    """Tokens of the texts of every prepared task, and how many rows ``max_length`` cuts."""
    from regft_core.data import lengths
    from regft_core.phases.lengths import known_lengths, modes

    every = {task: known_lengths(project, task) for task in project.params.grid.tasks}
    found = {task: measured for task, measured in every.items() if measured is not None}
    parts = []
    if found:
        parts = [f"tokens per row at max_length {project.params.model.max_length}", lengths.table(found)]
    if missing := [task for task in every if task not in found]:
        parts.append(
            f"token lengths of {', '.join(missing)}: known once the stage dataset has run (`dvc repro dataset`)"
        )
    for task, measured in found.items():
        for text in lengths.warnings(task, measured, modes(project)):
            print(f"warning: {text}", file=sys.stderr)
    return "\n".join(parts)


def controls(root: Path, params_file: str, write: bool) -> str:
    """The controls that are missing; with ``write`` they are added to the params file."""
    project = open_project(root, params_file)
    found = find_controls(root, project.methods)
    for line in found.unreadable:
        print(f"warning: {line}", file=sys.stderr)
    without = [
        f"no control is declared for '{name}': no arm tells what its ingredient does; "
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
        return "\n".join([*without, *(str(control) for control in found.missing)])
    # The controls' own files were not checked so far: nothing lists them. Check before writing.
    text = (root / params_file).read_bytes().decode("utf-8-sig")
    open_project(root, params_file, with_controls(text, found.missing, params_file))
    write_controls(root, found.missing, params_file)
    added = (f"  {control.name} (control for {control.control_for})" for control in found.missing)
    return "\n".join([f"added to {params_file}:", *added])


def _warn(project: Project) -> None:
    for warning in project.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, 2 for a wrong configuration."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--root", type=Path, default=argparse.SUPPRESS, help="project root (default: here)")
    shared.add_argument("--params", default=argparse.SUPPRESS, help="another file in the place of params.yaml")
    parser = argparse.ArgumentParser("python -m regft_core.config", description=__doc__, parents=[shared])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("validate", parents=[shared], help="check everything (the default)")
    commands.add_parser("plan", parents=[shared], help="what would be trained, and how many rows max_length cuts")
    missing = commands.add_parser("controls", parents=[shared], help="controls of listed methods that are not listed")
    missing.add_argument("--write", action="store_true", help="add them to the params file")
    given = parser.parse_args(arguments)
    root, params_file = getattr(given, "root", Path()), getattr(given, "params", "params.yaml")
    try:
        if given.command == "plan":
            print(plan(root, params_file))
        elif given.command == "controls":
            print(controls(root, params_file, given.write))
        else:
            print(validate(root, params_file))
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

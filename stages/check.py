"""Check every YAML file that the job uses, and list all errors.

Takes under a second and trains nothing. For a valid project it prints one
line with the number of methods, tasks and runs.

examples
  regft check
  regft check --preset hype_table3

next: regft plan, which shows what would be trained and how long it takes
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from regft_core.errors import ConfigError
from regft_core.grid.data import skew_warnings
from regft_core.hooks.registry import discover
from regft_core.names import plural
from regft_core.settings.grid import cells
from regft_core.settings.layers import all_sizes
from regft_core.settings.project import Project

from .common import PRESET, flag, project_or_preset, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print one line on a valid project, or all that is wrong."""
    try:
        project = project_or_preset(root, arguments.preset)
    except ConfigError as error:
        if not arguments.json:
            raise
        print(json.dumps({"valid": False, "problems": [asdict(problem) for problem in error.problems]}, indent=1))
        sys.exit(error.exit_code)
    warn(project)
    grid = project.params.grid
    count, seeds = len(cells(project)), len(grid.seeds)
    line = (
        f"configuration is valid: {plural(len(project.methods), 'method')} x {plural(len(grid.tasks), 'task')} x "
        f"{plural(len(all_sizes(project.params)), 'size')} = {plural(count, 'cell')}, {plural(count * seeds, 'run')} "
        f"({plural(seeds, 'seed')})"
    )
    print(json.dumps({"valid": True, "says": line}) if arguments.json else line)


def warn(project: Project) -> None:
    """Print what a valid project is warned of."""
    registry = discover()
    for name in registry:
        try:
            registry[name]
        except ConfigError as error:
            for problem in error.problems:
                print(f"warning: left out: {problem}", file=sys.stderr)
    for warning in (*project.warnings, *skew_warnings(project)):
        print(f"warning: {warning}", file=sys.stderr)


if __name__ == "__main__":
    run(main, PRESET, flag("--json", "one JSON object, for scripts"))

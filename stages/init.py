"""Make a new project: params.yaml, the pipeline, one task.

Writes a folder that does not exist yet or is empty. With --task the file is
copied into data/, and cross-validation evaluates every row once. Git is
optional.

examples
  regft init my-project
  regft init reviews --task reviews.csv --text review --label verdict

next: cd reviews && regft run
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from regft_core.errors import ConfigError
from regft_core.fit.new_project import make_project
from regft_core.fit.rows import Asked
from regft_core.runs.project import open_project

from .common import ROWS, argument, asked_for, refuse_contradictions, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write a new folder; a folder in use is refused and left alone."""
    model = arguments.model or ""
    if model and (root / model).is_dir():
        model = os.path.abspath(root / model)
    folder = root / arguments.folder
    for line in make_project(folder, _rows(arguments), model):
        print(f"note: {line}")
    print(f"made {arguments.folder}; its README.md says what is where. Next:")
    try:
        open_project(folder)
        print(f"  cd {arguments.folder} && regft run")
    except ConfigError as error:
        print(f"  cd {arguments.folder}, mend this, then regft run:")
        print("\n".join(f"  {problem}" for problem in error.problems))


def _rows(arguments: argparse.Namespace) -> Asked | None:
    """Return the file that was given. Raises ConfigError for a file without columns, and for columns without one."""
    needed = {"--task": arguments.task, "--text": arguments.text, "--label": arguments.label}
    more = [getattr(arguments, name[2:]) for name, _ in ROWS]
    if not any((*needed.values(), *more)):
        return None
    lacking = [name for name, value in needed.items() if value is None]
    message = f"{', '.join(lacking)} missing: a file needs the names of its columns"
    refuse_contradictions([(lacking, message)], "regft init reviews --task reviews.csv --text COLUMN --label COLUMN")
    return asked_for(Path(arguments.task), arguments)


if __name__ == "__main__":
    run(
        main,
        argument("folder", "folder to make"),
        argument("--task", "file of labelled rows: .csv, .tsv, .jsonl, .parquet or .xlsx; an example without it"),
        argument("--text", "its column of the text"),
        argument("--label", "its column of the label"),
        *ROWS,
        argument("--model", "alias, local directory or hub id of the encoder; minilm when absent"),
    )

"""Make a new project: params.yaml, the pipeline, one task (not a DVC stage).

regft init my-project
regft init reviews --task reviews.csv --text review --label verdict
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from regft_core.catalogue import KINDS
from regft_core.errors import ConfigError, Problem
from regft_core.fit.new_project import make_project
from regft_core.fit.rows import Asked
from regft_core.runs.project import open_project

from .common import DECIMAL, FORMAT, Argument, format_of, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write a folder that is not there yet, or is empty; a folder in use is refused and left alone.

    With --task the file is copied into data/, and all of its rows train and judge in turn. Without git it works, too.
    """
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
    """The file that was given. Raises ConfigError for a file without columns, and for columns without a file."""
    given = {"--text": arguments.text, "--label": arguments.label}
    if arguments.task is not None and all(given.values()):
        columns = arguments.text, arguments.label, arguments.pair, arguments.group
        return Asked(Path(arguments.task), *columns, arguments.kind, format_of(arguments))
    others = [
        getattr(arguments, name) for name in ("pair", "group", "kind", "encoding", "delimiter", "sheet", "decimal")
    ]
    if arguments.task is None and not any((*given.values(), *others)):
        return None
    lacks = [name for name, value in {"--task": arguments.task, **given}.items() if value is None]
    message = f"{', '.join(lacks)} missing: a file needs the names of its columns"
    hint = "regft init reviews --task reviews.csv --text COLUMN --label COLUMN"
    raise ConfigError([Problem("contradicting-arguments", "command line", 0, "", message, hint)])


if __name__ == "__main__":
    run(
        main,
        Argument("folder", "folder to make", positional=True),
        Argument("task", "file of labelled rows: .csv, .tsv, .jsonl, .parquet or .xlsx; an example without it", False),
        Argument("text", "its column of the text", required=False),
        Argument("label", "its column of the label", required=False),
        Argument("pair", "its column of the second text, where rows are pairs", required=False),
        Argument("group", "its column whose rows stay together (product, author, premise)", required=False),
        Argument("kind", "what the labels are, where they do not tell", required=False, choices=tuple(KINDS.names())),
        *FORMAT,
        DECIMAL,
        Argument("model", "alias, local directory or hub id of the encoder; minilm when absent", required=False),
    )

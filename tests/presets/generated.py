"""Rows of hub sets as if they were fetched: built-in cue tasks with the columns and labels of each set."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow
from pyarrow import parquet

from regft_core.data import builtin
from regft_core.data.fetched import is_fetched, split_folder
from regft_core.data.prepare import EvaluationSet, declaration_of, resolve_ood
from regft_core.data.read_split import Declaration
from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import write_json
from regft_core.grid.missing_files import tasks_to_prepare
from regft_core.schema.sources import HubSource
from regft_core.settings.project import Project

#: Rows of each set, and the number that a set's own rows are taken from.
ROWS, POOL = 48, 400


def fetch_generated(root: Path, project: Project) -> None:
    """Put generated rows where the hub sets of a project would be."""
    for name, wanted in _sets(project):
        if isinstance(wanted.source, HubSource) and not is_fetched(root, wanted.source, wanted.split):
            folder = split_folder(root, wanted.source, wanted.split)
            folder.mkdir(parents=True)
            rows = list(_rows(f"{name} {wanted.split}", wanted.declaration, wanted.split == "train"))
            parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "rows.parquet")
            write_json(folder / "source.json", {"commit": "generated", "sha256": sha256_file(folder / "rows.parquet")})


def _sets(project: Project) -> Iterator[tuple[str, EvaluationSet]]:
    for name in tasks_to_prepare(project):
        task = project.tasks[name]
        for split in (task.splits.train, task.splits.dev):
            if isinstance(split, str):
                yield name, EvaluationSet(task.source, split, declaration_of(task), None, name)
        for judge in task.ood if name in project.params.grid.tasks else ():
            yield judge, resolve_ood(name, judge, project.tasks)


def _rows(name: str, declaration: Declaration, training: bool) -> Iterator[Mapping[str, object]]:
    """Rows whose answers are spread over the labels; of more than two the texts name the group that the label is in."""
    columns, labels = declaration.columns, declaration.labels
    generator = "cue_regression" if not labels else "cue_pair" if columns.text_pair else "cue_sentence"
    options = {"rows": dict.fromkeys(builtin.SPLITS, POOL)}
    start = zlib.crc32(name.encode()) % (POOL - ROWS)
    examples = builtin.generate(generator, "train" if training else "dev", options)[start : start + ROWS]
    groups = (len(labels or ()) + 1) // 2
    raw = {label: value for value, label in (declaration.label_values or {}).items()}
    for number, example in enumerate(examples):
        if labels:
            index = min(2 * (number % groups) + int(example.label), len(labels) - 1)
            label: object = raw.get(labels[index], str(index))
            text = f"Subject {number % groups}. {example.text}" if groups > 1 else example.text
        else:
            low, high = declaration.range or (0.0, 5.0)
            label, text = low + (high - low) * example.label / 5, example.text
        row: dict[str, object] = {columns.text: text, columns.label: label}
        row |= {columns.text_pair: example.text_pair} if columns.text_pair else {}
        yield row | ({columns.id: str(number)} if columns.id else {})

"""Prediction files for a benchmark's server, in the formats of GLUE and CLUE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import Example
from regft_core.data.prepare import declaration_of
from regft_core.data.read_split import read_split
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.kinds import find
from regft_core.kinds._decision import decided
from regft_core.runs.context import Context
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.opened_project import Job
from regft_core.schema.tasks import SubmissionConfig
from regft_core.serve.export import finished_run
from regft_core.settings.yaml_paths import task_file

if TYPE_CHECKING:
    import numpy.typing as npt


def write_submission(job: Job, out: Path | None = None) -> list[tuple[Path, int]]:
    """Predict every split of the task's ``submission`` with one finished run; returns (file, rows) of each.

    Args:
        out: folder, by default ``submissions/<method>-<task>-<size>-seed-<seed>``.

    Raises:
        ConfigError: the task declares no submission, or the run is not in the grid.
        RunFailed: the run has no model.
        DataError: a split cannot be read.
    """
    context, _ = finished_run(job)
    wanted = context.task_config.submission
    if wanted is None:
        hint = "add for instance submission: {format: glue, files: {SST-2.tsv: test}}"
        file = task_file(job.task)
        raise ConfigError([Problem("no-submission", file, 0, "submission", "the task declares no submission", hint)])
    name = f"{job.method}-{job.task}-{job.size}-seed-{job.seed}"
    folder = out if out is not None else context.root / "submissions" / name
    model = FinishedModel(context)
    written = []
    for file, split in wanted.files.items():
        examples = unlabelled(context, split)
        logits = decided(model.decision, model.answer(examples))
        lines = submission_lines(wanted, examples, logits, context.task)
        write_text(folder / file, "".join(f"{line}\n" for line in lines))
        written.append((folder / file, len(examples)))
    return written


def unlabelled(context: Context, split: str) -> list[Example]:
    """All rows of a split of the task's source, in its order; their labels are not read."""
    task = context.task_config
    declaration = replace(declaration_of(task), labelled=False)
    return read_split(context.root, context.job.task, task.source, split, declaration).examples


def submission_lines(
    wanted: SubmissionConfig, examples: Sequence[Example], logits: npt.NDArray[Any], task: dict[str, Any]
) -> list[str]:
    """The lines of one file.

    GLUE: a header, then the position of each row and its label's name (or value, within the task's range, to three
    digits). CLUE: one JSON object for each row with its ``id`` and ``label``.

    Args:
        logits: ``[n, K]`` by which the model decides, in the order of the examples.
        task: content of ``task.json``.
    """
    answers = find(task["kind"]).submitted(logits, task["labels"], wanted.labels, task.get("range"))
    if wanted.format == "glue":
        return ["index\tprediction", *(f"{number}\t{answer}" for number, answer in enumerate(answers))]
    rows = ({"id": _number(row.idx), "label": answer} for row, answer in zip(examples, answers, strict=True))
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def _number(idx: str) -> int | str:
    """An identifier as a number where it is one, as the benchmark's own files have it."""
    return int(idx) if idx.isdecimal() else idx

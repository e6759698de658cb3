"""11: one wrong configuration of each kind of mistake, with its code and its line. 12: all mistakes come at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.api import Project
from regft_core.errors import ConfigError
from tests.errors import problems_of
from tests.promises.kit import edit
from tests.small_project import build, stage

PARAMS = """\
model: {name: models/tiny, max_length: 32}
grid:
  tasks: [reviews]
  sizes: [16]
  seeds: [0, 1]
methods:
  - vanilla
  - mine
training:
  epochs: 1
  learning_rate: 1.0e-3
subsample: {}
execution: {executor: serial}
report: {reference: vanilla}
"""
TASK = """\
source: {kind: files}
splits: {train: train.csv, dev: dev.csv}
columns: {text: review, label: verdict}
labels: [bad, good]
metrics: [accuracy]
primary: accuracy
"""
METHOD = """\
description: noise
regularisers:
  hype: {scale: 1.0e-5}
training: {}
"""
SETTINGS = "params.yaml"
REVIEWS = "pipelines/tasks/reviews.yaml"
MINE = "pipelines/methods/mine.yaml"
#: (file, text, replacement, code, line; 0 where nothing has one).
MISTAKES: list[tuple[str, str, str, str, int]] = [
    (SETTINGS, "training:", "trainings:", "unknown-key", 9),
    (SETTINGS, "model: {name: models/tiny, max_length: 32}", "model: {}", "key-missing", 1),
    (SETTINGS, "epochs: 1", "epochs: two", "invalid-value", 10),
    (SETTINGS, "epochs: 1", "epochs: 0", "invalid-value", 10),
    (SETTINGS, "1.0e-3", "'1e-3'", "invalid-value", 11),
    (SETTINGS, "1.0e-3", ".nan", "invalid-value", 11),
    (SETTINGS, "1.0e-3", "2e5", "invalid-value", 11),
    (SETTINGS, "epochs: 1", "precision: bf17", "invalid-value", 10),
    (SETTINGS, "[16]", "16", "invalid-value", 4),
    (SETTINGS, "[16]", "[]", "invalid-value", 4),
    (SETTINGS, "[0, 1]", "[0, -1]", "invalid-value", 5),
    (SETTINGS, "[0, 1]", "[0, 0]", "listed-twice", 5),
    (SETTINGS, "[0, 1]", "[0, 1", "open-bracket", 6),
    (SETTINGS, "seeds: [0, 1]", "seeds: [0, 1]\n  seeds: [2]", "duplicate-key", 6),
    (SETTINGS, "epochs: 1", "epochs: yes", "invalid-value", 10),
    (SETTINGS, "epochs: 1", "epochs: 0x1f" + "f" * 5000, "ambiguous-scalar", 10),
    (SETTINGS, "[reviews]", "[review]", "unknown-task", 3),
    (SETTINGS, "[reviews]", "[../etc]", "invalid-value", 3),
    (SETTINGS, "- mine", "- min", "unknown-method", 8),
    (SETTINGS, "reference: vanilla", "reference: vanila", "not-listed", 14),
    (SETTINGS, "models/tiny", "models/tinny", "revision-missing", 1),
    (SETTINGS, "models/tiny", "owner/encoder", "revision-missing", 1),
    (SETTINGS, "max_length: 32", "revision: main", "revision-not-allowed", 1),
    (SETTINGS, "models/tiny", "data", "file-missing", 1),
    (SETTINGS, "max_length: 32", "max_length: 100000", "invalid-value", 1),
    (SETTINGS, "executor: serial", "executor: serail", "invalid-value", 13),
    (SETTINGS, "executor: serial", "device: gpu", "invalid-value", 13),
    (SETTINGS, "report: {", "store: {path: data}\nreport: {", "store-in-folder-of-others", 14),
    (SETTINGS, "report: {", "evaluations: {robust: {}}\nreport: {", "unknown-evaluation", 14),
    (SETTINGS, "report: {", "ood: [shopp]\nreport: {", "unknown-set", 14),
    (SETTINGS, "report: {", "repeat: 3\nreport: {", "unknown-key", 14),
    (SETTINGS, "report: {", "method_settings: {mine: {regularisers: {hype: {scal: 1}}}}\nreport: {", "unknown-key", 14),
    (REVIEWS, "{kind: files}", "{kind: file}", "unknown-choice", 1),
    (REVIEWS, "train.csv", "trian.csv", "file-missing", 2),
    (REVIEWS, "train.csv", "../secret.csv", "outside-data", 2),
    (REVIEWS, "train.csv", "train.docx", "unknown-format", 2),
    (REVIEWS, "dev: dev.csv", "dev: train.csv", "judged-on-training-rows", 2),
    (REVIEWS, "text: review", "text: reviw", "column-missing", 3),
    (REVIEWS, "[bad, good]", "[bad]", "inconsistent", 4),
    (REVIEWS, "[bad, good]", "[bad, 1]", "invalid-value", 4),
    (REVIEWS, "metrics: [accuracy]", "metrics: [acuracy, accuracy]", "unknown-metric", 5),
    (REVIEWS, "primary: accuracy", "primary: f1_macro", "inconsistent", 6),
    (MINE, "hype:", "hyp:", "unknown-regulariser", 3),
    (MINE, "scale:", "scal:", "unknown-key", 3),
    (MINE, "1.0e-5", "-1", "invalid-value", 3),
    (MINE, "training: {}", "training: {}\ncontrol_for: vanila\ndiffers_in: [regularisers]", "unknown-method", 5),
    (MINE, "training: {}", "training: {epoch: 3}", "unknown-key", 4),
]
#: A replacement -> the nearest name that is there, which is offered.
NEAREST = {"trainings:": "training", "- min": "mine", "scal:": "scale", "text: reviw": "review", "hyp:": "hype"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(tmp_path_factory.mktemp("mistakes") / "project", methods=["vanilla"])
    files(root)
    Project.open(root)
    return root


def files(root: Path) -> None:
    """Write the files of the right configuration."""
    for name, text in ((SETTINGS, PARAMS), (REVIEWS, TASK), (MINE, METHOD)):
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "line"), MISTAKES, ids=[f"{m[3]}: {m[2][:40]}" for m in MISTAKES]
)
def test_a_mistake_is_named_with_its_code_file_and_line(
    project: Path, file: str, old: str, new: str, code: str, line: int
) -> None:
    files(project)
    edit(project / file, old, new)
    found = problems_of(Project.open, project)
    hints = [p.hint for p in found if (p.code, p.file, p.line) == (code, file, line)]
    assert hints, "\n".join(map(str, found))
    assert new not in NEAREST or f"'{NEAREST[new]}'" in "".join(hints)


def test_all_mistakes_come_at_once_and_the_command_ends_with_2(project: Path) -> None:
    files(project)
    edit(project / SETTINGS, "epochs: 1", "epochs: two")
    edit(project / SETTINGS, "max_length: 32", "max_lengths: 32")
    edit(project / SETTINGS, "executor: serial", "executor: cereal")
    found = {(problem.file, problem.line) for problem in problems_of(Project.open, project)}
    assert {(SETTINGS, line) for line in (1, 10, 13)} <= found
    files(project)  # what the other files must fit is valid now
    edit(project / SETTINGS, "seeds: [0, 1]", "seeds: [0, 0]")
    edit(project / SETTINGS, "reference: vanilla", "reference: vanila")
    edit(project / REVIEWS, "train.csv", "trian.csv")
    edit(project / REVIEWS, "text: review", "text: reviw")
    edit(project / MINE, "scale:", "scal:")
    expected = {(SETTINGS, 5), (SETTINGS, 14), (REVIEWS, 2), (REVIEWS, 3), (MINE, 3)}
    assert expected <= {(problem.file, problem.line) for problem in problems_of(Project.open, project)}
    done = stage(project, "check")
    assert done.returncode == ConfigError.exit_code == 2
    assert "Traceback" not in done.stderr
    assert all(f"{file}:{line}" in done.stderr for file, line in expected)
    files(project)
    assert stage(project, "check").returncode == 0

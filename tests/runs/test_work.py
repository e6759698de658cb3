"""Whatever is written in ``work/`` can be read; what cannot be read is named with file, key and stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import DataError
from regft_core.runs import outputs
from regft_core.runs.work import Work
from regft_core.settings.project import Cell

CELL = Cell("hype_n", "rte", 300)
COST: dict[str, float | None] = {"train_seconds": 3.5, "fit_seconds": 0, "real_tokens": 90, "peak_memory_bytes": None}
TRAINED: dict[str, Any] = {
    "size": "300", "seed": 1, "status": "ok", "error": None, "key": "k", "phases": {"search": "s"}, "variant": None,
    "precision": "fp32", "degraded": [], "environment": {"device": "cpu"}, "steps": 2, "seconds": 3.5, "marks": [],
    "cost": COST, "final_loss": 0.5, "skipped": None, "search_cost": COST | {"steps": 4},
    "epoch_scores": {"metric": "accuracy", "scores": [["finetune", "dev", 2, 1.0, None]]},
}  # fmt: skip
BULKY = {
    "curve": [["finetune", 1, 0.5, 0.7, 1e-4, 1.0], ["finetune", 2, 1.0, None, 0.0, 1.0]],
    "diagnostics": [["finetune", 2, "hype.noise", 0.25]],
}
FAILED = {"size": "300", "seed": 2, "key": "f", "status": "failed", "error": "loss became NaN", "phases": {}}
SETTINGS: dict[str, Any] = {
    "phases": ["search", "finetune"],
    "trains_encoder": True, "reads_encoder": True, "versions": {"torch": None},
    "settings": {"model": {"name": "minilm"}, "phases": {"finetune": {"training": {"epochs": 3}}}},
}  # fmt: skip
FOUND = {
    "status": "ok", "error": None, "environment": None, "scalars": {"dev": {"gap": 0.1}}, "ranges": {"gap": [0, None]},
    "tables": {"dev": {"bins": {"columns": ["bin", "n"], "rows": [["a", 2]], "keys": 1}}},
    "description": "a gap", "options": {"bins": 5}, "remarks": [], "over_sizes": [],
}  # fmt: skip
EVALUATED: dict[str, Any] = {
    "size": "300", "seed": 1, "key": "k", "status": "ok", "error": None, "cost": COST, "collapsed": None,
    "sets": {"dev": {"n": 2, "metrics": {"accuracy": 0.5}, "majority": {"accuracy": 0.5}, "warning": None}},
    "predictions": {
        "dev": '{"idx": "a", "label": 1, "prediction": 0, "scores": [0.75, 0.25]}\n'
        '{"idx": "b", "label": 1, "prediction": 1, "scores": [0.25, 0.75]}\n'
    },
    "evaluations": {"gaps": FOUND},
}  # fmt: skip


KEYS = {"runs": {"1": "k", "2": "f"}, "with": "h"}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    work = Work(tmp_path)
    outputs.write_folder(work.folder("finetune", CELL), SETTINGS, [TRAINED | BULKY, FAILED], KEYS)
    outputs.write_folder(work.folder("evaluate", CELL), {"primary": "accuracy"}, [EVALUATED], KEYS)
    return work


def change(path: Path, how: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


def test_what_is_written_is_read(work: Work) -> None:
    manifest = work.finetune(CELL)
    assert [run.plain() for run in manifest.runs] == [TRAINED, FAILED]
    assert manifest.runs[0].keys == {"search": "s", "finetune": "k"}
    assert manifest.model["name"] == "minilm"
    points = work.curves(CELL, [2, 1])
    assert [(point.step, point.loss, point.learning_rate) for point in points] == [(1, 0.7, 1e-4), (2, None, 0.0)]
    assert work.logged(CELL, [1]) == [(1, "finetune", 2, "hype.noise", 0.25)]
    (run,) = work.evaluation(CELL).runs
    assert (run.ok, run.sets["dev"].metrics) == (True, {"accuracy": 0.5})
    found = work.predictions(CELL, 1, "dev", "classification")
    assert (found.ids, found.gold.tolist(), found.predicted.tolist()) == (["a", "b"], [1, 1], [0, 1])
    assert found.scored == [[0.75, 0.25], [0.25, 0.75]]
    finding = work.findings(CELL)["gaps"]
    assert (finding.description, finding.runs[0].key, finding.runs[0].tables["dev"]["bins"].listed) == (
        "a gap",
        "k",
        True,
    )


@pytest.mark.parametrize(
    ("how", "key"),
    [
        (lambda v: v["runs"][0]["cost"].update(train_seconds="long"), r"runs\[0\]\.cost\.train_seconds: "),
        (lambda v: v["runs"][0]["epoch_scores"]["scores"][0].pop(), r"runs\[0\]\.epoch_scores\.scores\[0\]"),
        (lambda v: v["runs"][0].update(status="fine"), r"runs\[0\]\.status: .*'ok' or 'failed'"),
        (lambda v: v.pop("runs"), "runs: Field required"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(work: Work, how: Callable[[Any], object], key: str) -> None:
    path = work.manifest_file("finetune", CELL)
    change(path, how)
    with pytest.raises(DataError, match=rf"finetune/hype_n/rte/300/manifest\.json: {key}.*\n.*stage finetune"):
        work.finetune(CELL)


@pytest.mark.parametrize(
    "row", ["1,finetune,x,0.5,0.7,1e-4,1.0", "1,finetune,1,0.5,0.7", "1,finetune,1,0.5,a,1e-4,1.0"]
)
def test_a_row_that_is_no_step_is_refused(work: Work, row: str) -> None:
    path = work.folder("finetune", CELL) / "curves.csv"
    path.write_text(f"seed,phase,step,epoch,loss,learning_rate,gradient_norm\n{row}\n")
    with pytest.raises(DataError, match=r"curves\.csv: not a log of steps.*\n.*stage finetune"):
        work.curves(CELL, [1])
    assert work.curves(CELL, [0]) == []  # of another seed
    path.unlink()
    assert work.curves(CELL, [0]) == []

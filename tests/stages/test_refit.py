"""The final model: trained on all labelled rows, and described by what judged the same settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from regft_core.disk.canonical import sha256_json
from regft_core.errors import ConfigError, ModelError
from regft_core.grid.refit import refit
from regft_core.runs.analyses import from_npy
from regft_core.runs.context import Context, Job
from regft_core.runs.encoder_tensors import load_whole
from regft_core.runs.evaluate import evaluation_identity
from regft_core.serve.export import export, finished_run
from regft_core.serve.out_of_fold import OutOfFold
from regft_core.statistics.confidence import threshold_for
from tests.errors import raises_code
from tests.grid.conftest import bits, quiet, reproduce
from tests.runs.conftest import change, write_method
from tests.small_project import SCORES, TASK, build, read_jsonl, stage, write_csv

WORDS = ["film", "story", "actor", "plot", "music", "place", "food", "service", "night", "house", "dog", "cat", "red"]
ROWS = 40
#: Repeats of two folds: seeds 0 to 3.
FOLDED: dict[str, Any] = {**TASK, "splits": {"train": "rows.csv", "dev": {"folds": 2, "repeats": 2}}}
GRID: dict[str, Any] = {"sizes": ["full"], "seeds": [0, 1, 2, 3]}


def make(root: Path, methods: list[str], task: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A reproduced project. Its 40 rows are hard to tell apart for a tiny encoder, so that answers are wrong, too."""
    sections = {"tasks": {"reviews": task or FOLDED}, "grid": GRID, "report": {"reference": methods[0]}, **changes}
    root = build(root, methods=methods, **sections)
    random = Random(0)
    rows = []
    for row in range(ROWS):
        label = ("bad", "good")[random.random() < 0.5]
        words = [("good" if label == "good" else "bad") if random.random() < 0.7 else "it", *random.choices(WORDS, k=6)]
        rows.append((" ".join([*words, str(row)]), label, f"s{row // 4}"))
    write_csv(root / "data" / "rows.csv", [("review", "verdict", "shop"), *rows])
    assert reproduce(root) == {}
    return root


def described(folder: Path) -> tuple[dict[str, Any], str]:
    return json.loads((folder / "regft.json").read_text()), (folder / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("folded") / "project", ["vanilla", "lp_ft"])


@pytest.fixture(scope="module")
def final(folded: Path) -> Path:
    return export(refit(folded, "vanilla", say=quiet))


# ------------------------------------------------------------------------------------ training


def test_a_refit_has_the_bits_of_a_plain_run_on_the_same_rows(folded: Path, final: Path, tmp_path: Path) -> None:
    """Training by hand on the union of all folds: another project, whose task has these rows and no folds."""
    by_hand = make(tmp_path / "plain", ["vanilla"], {**TASK, "splits": {"train": "rows.csv", "dev": "dev.csv"}})
    key = described(final)[0]["run_key"]
    assert bits(by_hand)[key] == bits(folded)[key]
    context, record = finished_run(refit(folded, "vanilla", say=quiet))
    assert (len(context.phase("finetune").rows.examples), record.key) == (ROWS, key)


def test_all_phases_train_on_all_rows_and_epochs_make_the_steps(folded: Path) -> None:
    context, record = finished_run(refit(folded, "lp_ft", say=quiet))
    for phase in context.phases:
        assert len(phase.rows.examples) == ROWS
    epochs = context.phase("finetune").training.epochs
    assert record.steps == epochs * ROWS // 8
    before = json.loads((folded / "work/finetune/lp_ft/reviews/full/manifest.json").read_text())["runs"][0]["steps"]
    assert before == epochs * 3  # 20 rows in batches of 8


def test_a_refit_takes_the_trial_with_the_best_mean_of_all_seeds(tmp_path: Path) -> None:
    tuning = {"selection": "split", "split": 0.7, "values": {"training.learning_rate": [1e-6, 1e-3, 3e-3]}}
    root = make(tmp_path / "project", ["vanilla"], tuning=tuning)
    runs = json.loads((root / "work/finetune/vanilla/reviews/full/manifest.json").read_text())["runs"]
    means = [np.mean([run["tuned"]["trials"][trial]["score"] for run in runs]) for trial in range(3)]
    best = tuning["values"]["training.learning_rate"][int(np.argmax(means))]  # type: ignore[index]
    job = refit(root, "vanilla", say=quiet)
    assert job.values == {"training.learning_rate": best}
    context, _ = finished_run(job)
    assert context.phase("finetune").training.learning_rate == best
    assert f"- **Tuned values**: training.learning_rate {best}" in described(export(job))[1]


def test_a_phase_of_the_final_model_is_the_mean_of_the_evaluated_runs(tmp_path: Path) -> None:
    """The mean by hand of what the store has; nothing is trained for it, and without evaluated runs it is trained."""
    phases = {
        "head": {"regularisers": {"linear_head": {}}, "training": {"epochs": 0}},
        "finetune": {"refit": "mean_of_runs", "training": {"epochs": 1}},
    }
    root = make(tmp_path / "project", ["majority"])
    write_method(root, "mean", phases=phases)
    change(root, methods=["mean"], report={"reference": "mean"})
    assert reproduce(root) == {}
    trained = bits(root)
    job = refit(root, "mean", say=quiet)
    context, record = finished_run(job)
    new = {key for key in bits(root) if key not in trained}
    assert new == {context.key("head"), record.key}

    def weights(of: Context) -> dict[str, Any]:
        return load_whole(of.last, of.store.get(of.key("finetune")), "weights")

    runs = [weights(Context(Job(str(root), "mean", "reviews", "full", seed))) for seed in GRID["seeds"]]
    for name, tensor in weights(context).items():
        mean = torch.stack([run[name].double() for run in runs]).mean(0)
        assert torch.equal(tensor, mean.to(tensor.dtype)), name
    assert "- **Mean of weights**: phase finetune: these runs" in described(export(job))[1]
    alone = refit(root, "mean", judged=False, say=quiet)
    assert len(Context(alone).last.rows.examples) == ROWS
    assert finished_run(alone)[1].key not in {record.key, *trained}


def test_a_phase_of_the_final_model_is_the_mean_of_several_trainings_on_all_rows(folded: Path) -> None:
    """Each of them sees all rows and is another one; the evaluated runs are those of the method without the setting."""
    change(folded, methods=["vanilla", "lp_ft"], method_settings={"vanilla": {"phases": {"finetune": {"refit": 2}}}})
    before = bits(folded)
    assert reproduce(folded) == {}
    assert bits(folded) == before
    context, record = finished_run(job := refit(folded, "vanilla", say=quiet))
    members = [context.key("finetune", member) for member in range(2)]
    assert set(bits(folded)) - set(before) == {record.key, *members}
    assert context.last.settled.members == 2
    one, other, merged = (load_whole(context.last, context.store.get(k), "weights") for k in (*members, record.key))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    for name, tensor in merged.items():
        mean = torch.stack([one[name].double(), other[name].double()]).mean(0)
        assert torch.equal(tensor, mean.to(tensor.dtype)), name
    assert "- **Mean of weights**: phase finetune: 2 trainings on all rows" in described(export(job))[1]


# ------------------------------------------------------------------------------------ its numbers and its card


def test_temperature_is_that_of_all_out_of_fold_logits(folded: Path, final: Path) -> None:
    """An independent computation: the stored logits of all seeds, and the likelihood on a fine grid."""
    logits, gold = [], []
    for record in json.loads((folded / "work/evaluate/vanilla/reviews/full/result.json").read_text())["runs"]:
        context = Context(Job(str(folded), "vanilla", "reviews", "full", record["seed"]))
        run = context.store.get(sha256_json(evaluation_identity(context)))
        logits.append(from_npy(run.read_bytes("logits/dev.npy")).astype(np.float64))
        gold += [row.label for row in context.dev_rows]
    margins = np.concatenate(logits)[:, 1] - np.concatenate(logits)[:, 0]
    signs = 2.0 * np.array(gold) - 1
    assert len(margins) == 2 * ROWS
    grid = np.exp(np.linspace(-4, 4, 200_001))
    losses = {at: np.logaddexp(0, -signs * margins / grid[at]).mean() for at in range(0, len(grid), 500)}
    nearest = min(losses, key=losses.__getitem__)
    low, high = max(0, nearest - 500), min(len(grid), nearest + 501)
    best = min(range(low, high), key=lambda at: np.logaddexp(0, -signs * margins / grid[at]).mean())
    assert described(final)[0]["refit"]["temperature"] == pytest.approx(grid[best], rel=1e-3)


def test_the_expected_score_is_that_of_the_report(folded: Path, final: Path) -> None:
    done = stage(folded, "report", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (folded / "reports/results.json").read_text()
    reported = json.loads(done.stdout)["reviews-full"]["vanilla"]
    shown, decided = reported["dev"]["accuracy"], reported["decision"]
    assert stage(folded, "export", "--method", "vanilla", "--refit").returncode == 0
    of, card = described(final)
    assert all(of["refit"][name] == decided[name] for name in ("expected", "low", "high"))
    assert [of["refit"][name] for name in ("rows", "judged_rows", "judged_seeds")] == [ROWS, [20, 20], [0, 1, 2, 3]]
    for text in (
        f"accuracy {decided['expected']:.4f} (95% interval {decided['low']:.4f} to {decided['high']:.4f})",
        f"- **Temperature**: {of['refit']['temperature']:.3f}, fitted on",
        f"| dev | accuracy | {shown['mean']:.4f} | {shown['low']:.4f} to {shown['high']:.4f} | 4 |",
        "| shop | accuracy |",
    ):
        assert text in card, (text, card)
    assert "This model |" not in card
    assert "Mean of these runs" not in card
    params = (folded / "params.yaml").read_text()
    (folded / "params.yaml").write_text(params.replace("report:\n", "report:\n  decide_by: shop\n"))
    for command in (["report"], ["export", "--method", "vanilla", "--refit"]):
        assert stage(folded, *command).returncode == 0
    (folded / "params.yaml").write_text(params)
    assert ("evaluated on rows" in card, "evaluated on shop" in described(final)[1]) == (True, True)
    (folded / "reports/tables/runs.csv").unlink()  # nothing tells whose numbers those of the report are
    again = stage(folded, "export", "--method", "vanilla", "--refit")
    assert again.returncode == 0, again.stderr
    told = described(final)[0]["refit"]
    assert (told["expected"], told["low"]) == (pytest.approx(shown["mean"]), None)


# ------------------------------------------------------------------------------------ other tasks


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A share of the rows as a development set, a development set of its own, and values."""
    tasks = {
        "share": {**TASK, "splits": {"train": "rows.csv", "dev": 0.25}},
        "own": TASK,
        "values": {**SCORES, "splits": {"train": "scores.csv", "dev": {"folds": 2}}},
    }
    settings = {"share": {"sizes": [20], "training": {"max_steps": 3, "warmup_steps": 1}}}
    grid = {"tasks": list(tasks), "sizes": ["full"], "seeds": [0, 1]}
    changes: dict[str, Any] = {
        "tasks": tasks,
        "grid": grid,
        "task_settings": settings | {"own": {"sizes": ["full", 16]}},
    }
    return make(tmp_path_factory.mktemp("several") / "project", ["vanilla"], **changes)


def test_a_share_trains_too_numbers_of_steps_grow_with_it_and_a_size_is_said(several: Path) -> None:
    job = refit(several, "vanilla", "share", say=quiet)
    context, record = finished_run(job)
    training = context.phase("finetune").training
    assert (record.steps, training.max_steps, training.warmup_steps) == (6, 6, 2)  # 40 rows instead of 20
    assert [row.idx for row in context.phase("finetune").rows.examples] == [str(n) for n in range(ROWS)]
    of, card = described(export(job))
    assert of["refit"]["judged_rows"] == [20, 20]
    assert "trained on 20 rows and evaluated on the 10 rows" in card


def test_a_development_set_of_its_own_stays_apart(several: Path) -> None:
    job = refit(several, "vanilla", "own", "16", say=quiet)
    context, record = finished_run(job)
    assert len(context.phase("finetune").rows.examples) == 32
    # With all training rows, the judged run is the final model.
    runs = json.loads((several / "work/finetune/vanilla/own/full/manifest.json").read_text())["runs"]
    assert record.key == runs[0]["key"]
    assert "all training rows of the task; its development set stays apart" in described(export(job))[1]


def test_values_have_an_expected_score_and_no_temperature(several: Path, tmp_path: Path) -> None:
    job = refit(several, "vanilla", "values", say=quiet)
    of, _ = described(export(job))
    assert (of["refit"]["temperature"], of["refit"]["metric"], of["refit"]["rows"]) == (None, "pearson", 32)
    with raises_code(ModelError, "bad-accuracy", "regression"):
        export(job, tmp_path / "none", accuracy=0.9)


# ------------------------------------------------------------------------------------ thresholds


def test_a_threshold_counts_every_row_of_every_fold_once(folded: Path, tmp_path: Path) -> None:
    """The answers are replaced by ones whose guarantee is known: 20 right rows of a fold guarantee no 90%, 40 do."""
    root = Path(shutil.copytree(folded, tmp_path / "project", symlinks=True))
    folder = root / "work/evaluate/vanilla/reviews/full/predictions"
    confidences: dict[str, float] = {}
    for seed in range(4):
        file = folder / f"seed-{seed}" / "dev.jsonl"
        rows = read_jsonl(file)
        for row in rows:
            high = 0.6 + int(row["idx"]) / 200 if seed < 2 else 0.55
            row |= {"prediction": row["label"], "scores": [high, 1 - high] if row["label"] == 0 else [1 - high, high]}
            confidences.setdefault(row["idx"], high)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = Job(str(root), "vanilla", "reviews", "full", 1)
    accuracy = 0.89
    found = threshold_for(list(confidences.values()), [True] * ROWS, accuracy)
    assert threshold_for(list(confidences.values())[:20], [True] * 20, accuracy) is None
    of, card = described(export(job, tmp_path / "careful", accuracy=accuracy))
    assert of["abstain"]["threshold"] == pytest.approx(found.threshold)
    assert (of["abstain"]["rows"], of["abstain"]["models"], of["abstain"]["coverage"]) == (ROWS, 2, found.coverage)
    assert "from 40 development rows, each evaluated by one of 2 models that had not seen it" in card
    # Rows of the other repeat are evaluated by models of its own, and count once as well.
    assert OutOfFold(root, job.cell, range(4)).once(2).confidences().max() == pytest.approx(0.55)


def test_rows_of_a_group_count_as_one_answer(tmp_path: Path) -> None:
    task = {**FOLDED, "columns": {**TASK["columns"], "group": "shop"}, "ood": {}}
    root = make(tmp_path / "project", ["tfidf_logistic"], task)
    answers = OutOfFold(root, Job(str(root), "tfidf_logistic", "reviews", "full", 0).cell, range(4)).once(0)
    assert np.unique(answers.groups, return_counts=True)[1].tolist() == [4] * 10
    with raises_code(ModelError, "no-guarantee", "(10.0 groups in effect)"):
        export(refit(root, "tfidf_logistic", say=quiet), accuracy=0.9)


# ------------------------------------------------------------------------------------ errors


def test_an_epoch_that_the_development_set_chose_is_not_refitted(tmp_path: Path) -> None:
    task = {**TASK, "splits": {"train": "train.csv", "dev": 0.25}}
    root = build(tmp_path, tasks={"reviews": task}, training={"checkpoint": "best_on_dev_as_published"})
    with raises_code(ConfigError, "refit-choice", "training.checkpoint", "without --refit"):
        refit(root, "vanilla", judged=False, say=quiet)

"""Cut texts and rare classes are said before anything trains: by the stage and by the plan, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regft_core.data.prepare import prepare_dataset
from regft_core.grid import measured_lengths as lengths
from regft_core.grid.data import prepare, skew_warnings
from regft_core.grid.time import set_sizes
from regft_core.settings.read_project import open_project
from tests.small_project import PAIRS, TASK, build, stage


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A project whose training texts have 62 tokens and lose 30 of them."""
    return build(tmp_path / "project", tasks={"reviews": TASK, "pairs": PAIRS}, words=59)


def test_the_plan_shows_lengths_and_warns_once_rows_are_prepared(long: Path) -> None:
    assert "token lengths of reviews: known after" in stage(long, "plan").stdout
    prepare_dataset(long, "reviews", open_project(long).tasks)
    planned = stage(long, "plan")
    assert "tokens per row at max_length 32" in planned.stdout
    assert max(map(len, planned.stdout.splitlines())) <= 80
    assert "cuts 100.0% of train" in planned.stderr


def test_known_lengths_are_read_and_never_those_of_another_length(long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(open_project(long))
    measured = lengths.known_lengths(open_project(long), "reviews")
    assert (measured["limit"], set(measured["sets"])) == (160, {"train", "dev", "shop"})
    assert measured == json.loads((long / "work" / "lengths" / "reviews.json").read_text())
    with monkeypatch.context() as patch:
        patch.setattr(lengths, "measure_task", lambda *_: pytest.fail("measured again"))
        assert lengths.known_lengths(open_project(long), "reviews") == measured
    params = long / "params.yaml"
    params.write_text(params.read_text().replace("max_length: 32", "max_length: 64"))
    again = lengths.known_lengths(open_project(long), "reviews")
    assert (again["max_length"], again["sets"]["train"]["cut"]) == (64, 0.0)
    prepare(open_project(long))
    assert lengths.up_to_date_lengths(open_project(long), "reviews") == again


@pytest.mark.parametrize(("methods", "apart"), [(["vanilla", "linear_probe"], False), (["linear_probe"], True)])
def test_pairs_are_counted_as_the_method_reads_them_that_cuts_most(
    tmp_path: Path, methods: list[str], apart: bool
) -> None:
    project = build(
        tmp_path,
        tasks={"reviews": TASK, "pairs": PAIRS},
        grid={"tasks": ["pairs"]},
        methods=methods,
        report={"reference": methods[0]},
        task_settings={"pairs": {"model": {"pooling": "mean"}}},  # the shared one has no vector for `separately`
    )
    prepare(open_project(project))
    opened, found = open_project(project), json.loads((project / "work" / "lengths" / "pairs.json").read_text())
    assert found["apart"] == apart
    size = set_sizes(opened, "pairs", opened.method("linear_probe", "pairs").encoder(opened.model("pairs")))["train"]
    texts = 2 if apart else 1  # a step reads both, each as long as the longer one
    assert size.tokens == pytest.approx(
        texts * (0.6 * found["sets"]["train"]["median"] + 0.3 * found["sets"]["train"]["p95"])
    )


# ---------------------------------------------------------------------------------------- rare classes


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A project of the sizes [16] and the seeds [0, 1] whose task had 40 training rows; none are drawn."""
    root = build(tmp_path)
    dataset = root / "work" / "datasets" / "reviews"
    dataset.mkdir(parents=True)
    (dataset / "task.json").write_text(json.dumps({"counts": {"train": 40, "dev": 10}}))
    return root


def rows_of(root: Path, **counts: int) -> list[str]:
    """Return the warnings of a task whose drawn rows have these labels."""
    folder = root / "work" / "subsamples" / "reviews" / "16"
    folder.mkdir(parents=True, exist_ok=True)
    draw = {"sha256": "", "label_counts": counts}
    (folder / "manifest.json").write_text(json.dumps({"n": 16, "seeds": {"0": draw}}))
    return skew_warnings(open_project(root))


def test_a_rare_class_is_said_where_accuracy_ranks_methods(prepared: Path) -> None:
    assert skew_warnings(open_project(prepared)) == []  # nothing is drawn yet
    assert rows_of(prepared, bad=4, good=16) == []  # a fifth
    (said,) = rows_of(prepared, bad=3, good=17)
    assert said.startswith("task 'reviews': few training rows are 'bad' 15%, and accuracy hardly counts them; set ")
    assert "primary: f1_macro" in said
    assert "class_weights: balanced" in said
    assert said in stage(prepared, "check").stderr
    # Of many classes a fair share is below a fifth.
    assert rows_of(prepared, **dict.fromkeys("abcdefgh", 2)) == []
    assert "'a' 3%" in rows_of(prepared, a=1, **dict.fromkeys("bcdefgh", 5))[0]

"""Rows of a phase: folds, groups, texts without labels. No phase of any method sees a row that evaluates its seed."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.data.examples import UNLABELLED, Example, hold_out, read_jsonl, text_key, write_jsonl
from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json
from regft_core.errors import DataError
from regft_core.grid.data import prepare
from regft_core.runs.context import Context, Job
from regft_core.runs.evaluate import evaluate
from regft_core.runs.phase import phase_inputs
from regft_core.runs.rows import PhaseRows, run_rows, split_rows
from regft_core.runs.train import finetune, search, trials_that_choose
from regft_core.schema.method import Phase
from regft_core.schema.methods import DataConfig, RepeatConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.cost import plan_rows
from regft_core.settings.project import Project
from regft_core.settings.read_project import open_project
from regft_core.training.linear_solution import WORD_STRENGTHS, classify_linearly, regress_linearly, regress_words
from regft_core.training.logistic import Rows, folds_of
from tests.errors import problems_of
from tests.promises.kit import FOLDED, change, folded, write_method
from tests.small_project import REPOSITORY, TASK, build, review, write_csv

#: The same file under another name, with all of its rows.
TWIN = {**FOLDED, "splits": {"train": "rows.csv", "dev": "dev.csv"}, "columns": TASK["columns"]}
#: They want several labels of a row, a prompt, or rows of another task.
OTHERS = ("label_thresholds", "prompt_fine_tuning", "intermediate")


def check_unseen(job: Job, project: Project) -> int:
    """Check every phase of one run; returns how many it has."""
    context = Context(job, project=project)
    judged = {row.idx for row in context.dev_rows}
    texts = {text_key(row) for row in [*context.dev_rows, *context.held_out]}
    assert judged
    for phase in context.phases:
        rows = phase.rows.examples
        assert rows, phase.name
        assert not texts & {text_key(row) for row in rows}, (job.method, phase.name)
        if phase.declared.data.task in (None, "reviews"):
            assert not judged & {row.idx for row in rows}
    return len(context.method.phases)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every shipped method of several phases, and two whose first phase names its task."""
    shipped = {path.stem: path.read_text() for path in (REPOSITORY / "pipelines" / "methods").glob("*.yaml")}
    several = sorted(name for name, text in shipped.items() if "phases:" in text and not name.startswith(OTHERS))
    root = folded(tmp_path_factory.mktemp("every") / "project", ["vanilla", *several], tasks={"twin": TWIN})
    for name, task in (("own_rows", "reviews"), ("twin_rows", "twin")):
        write_method(root, name, phases={"first": {"data": {"task": task}}, "finetune": {"start": "first"}})
    prepare(open_project(root))
    return root


def test_no_phase_of_any_method_sees_the_rows_that_judge_its_seed(every: Path) -> None:
    project = open_project(every)
    methods = project.params.methods
    assert {"post_training", "setfit", "greedy_soup", "weight_mixup", "lp_ft"} <= set(methods)
    jobs = [Job(str(every), method, "reviews", "full", seed) for method in methods for seed in (0, 4)]
    assert max(check_unseen(job, project) for job in jobs) > 1
    # Of another task on the same file no judged row is left.
    context = Context(Job(str(every), "twin_rows", "reviews", "full", 1), project=project)
    assert len(context.phases[0].rows.examples) == 48 - len(context.dev_rows)


def test_as_many_steps_as_on_all_rows_are_those_of_the_own_fold(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"grid": {"sizes": [12], "seeds": [0, 1, 2, 3, 4]}, "training": {"batch_size": 1}}
    five = {**FOLDED, "splits": {"train": "rows.csv", "dev": {"folds": 5}}}
    root = folded(tmp_path / "project", ["vanilla"], five, **changes)
    write_method(root, "long", phases={"finetune": {"data": {"steps": "full"}, "training": {"warmup_steps": 2}}})
    prepare(open_project(root))
    project = open_project(root).snapshot()
    contexts = [Context(Job(str(root), "long", "reviews", "12", seed), project=project) for seed in range(5)]
    steps = [context.phase("finetune").training.max_steps for context in contexts]
    assert steps == [context.task["counts"]["train"] for context in contexts]
    assert len(set(steps)) == 2
    final = Context(Job(str(root), "long", "reviews", "12", 0, refit=True), project=project).last.training
    assert (final.max_steps, final.warmup_steps) == (48, 3)  # 2 of 38 steps


def test_trials_are_judged_by_rows_of_their_own_seed(tmp_path: Path) -> None:
    tuning = {"selection": "split", "split": 0.75, "values": {"training.learning_rate": [1e-5, 1e-3]}}
    root = folded(tmp_path / "project", ["vanilla"], tasks={"twin": TWIN}, tuning=tuning)
    write_method(root, "twin_rows", phases={"first": {"data": {"task": "twin"}}, "finetune": {}})
    prepare(project := open_project(root))
    for trial in trials_that_choose(project, Job(str(root), "twin_rows", "reviews", "full", 2)):
        assert trial.seed == 2
        check_unseen(trial, project)
        context = Context(trial, project=project)
        assert not {row.idx for row in context.held_out} & {row.idx for row in context.dev_rows}


# ------------------------------------------------------------------------------------------------------------- groups


#: 60 rows of 20 groups of 1 to 5 rows.
GROUPS = [f"g{number}" for number, size in enumerate([1, 2, 3, 4, 5] * 4) for _ in range(size)]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    rows = [Example(str(n), f"text {n}", None, n % 2) for n in range(len(GROUPS))]
    write_jsonl(tmp_path / "train.jsonl", rows)
    write_json(tmp_path / "groups.json", {"train": {row.idx: group for row, group in zip(rows, GROUPS)}})
    return tmp_path


def data_of(dataset: Path, **options: Any) -> PhaseRows:
    described = {"kind": "classification", "labels": ["a", "b"]}
    return PhaseRows(described, dataset, (dataset / "train.jsonl",), **options)


def phase(repeat: RepeatConfig | None = None) -> Phase:
    training = TrainingConfig.model_construct(checkpoint="best_on_split", checkpoint_share=0.2)
    return Phase("finetune", DataConfig(split=0.75), "checkpoint", repeat, None, (), training, {})


def apart(one: list[int], other: list[int]) -> bool:
    """Whether no group has rows in both."""
    return not {GROUPS[row] for row in one} & {GROUPS[row] for row in other}


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12), percent=st.integers(5, 90), seed=st.integers(0, 1000)
)
def test_what_is_set_aside_is_whole_groups_and_no_more_than_asked(sizes: list[int], percent: int, seed: int) -> None:
    units = [str(unit) for unit, size in enumerate(sizes) for _ in range(size)]
    count = percent * len(units) // 100
    aside = hold_out(units, count, Random(seed))
    rest = set(range(len(units))) - set(aside)
    assert aside
    assert rest
    assert not {units[row] for row in aside} & {units[row] for row in rest}
    assert len(aside) <= max(count, min(sizes))


def test_shares_that_a_phase_and_its_epochs_set_aside_keep_groups(dataset: Path) -> None:
    data = data_of(dataset)
    assert data.groups == GROUPS
    train, validation, judging = run_rows(phase(), None, data, seed=3)
    assert sorted([*train, *validation, *judging]) == list(range(60))
    assert apart(train, validation)
    assert apart(train, judging)
    assert 12 <= len(validation) <= 15
    assert 5 <= len(judging) <= 10


def test_members_of_a_phase_draw_other_groups(dataset: Path) -> None:
    repeat = RepeatConfig(times=3, merge="mean", vary=("split",))
    several = phase(repeat)
    draws = [run_rows(several, member, data_of(dataset), seed=0)[1] for member in range(3)]
    assert len({tuple(draw) for draw in draws}) == 3
    assert all(apart(draw, sorted(set(range(60)) - set(draw))) for draw in draws)


def test_a_trial_sees_no_row_of_a_group_that_judges_it(dataset: Path) -> None:
    own = {"draw": (40, 0, "t", False)}
    data = data_of(dataset, **own)  # a phase of its own size: its rows are others than the cell's
    every = read_jsonl(dataset / "train.jsonl")
    held_out = [every[row] for row in split_rows(60, 0.8, 0, "tuning", 0, GROUPS)[1]][:1]
    left = data_of(dataset, **own, held_out=(held_out[0].idx,)).examples
    group = GROUPS[int(held_out[0].idx)]
    assert [row for row in data.examples if GROUPS[int(row.idx)] != group] == left
    assert len(left) < len(data.examples)


@pytest.mark.parametrize("strata", [None, [row % 2 for row in range(60)]])
def test_folds_of_a_fit_keep_groups_and_cover_the_rows(strata: list[int] | None) -> None:
    folds = folds_of(60, strata, GROUPS, 5, seed=1)
    assert sorted(row for _, left in folds for row in left.tolist()) == list(range(60))
    assert all(apart(train.tolist(), left.tolist()) for train, left in folds)


def test_folds_that_would_lack_a_class_are_none() -> None:
    assert folds_of(4, None, ["a"] * 4, 5, seed=0) is None
    assert folds_of(4, [0, 0, 1, 1], ["a", "b", "c", "c"], 5, seed=0) is None  # class 1 is one group


def grouped_features(seed: int) -> tuple[Any, Any]:
    """Features that tell the group and nothing of the label, which is the group's: they help within groups only."""
    random = np.random.default_rng(seed)
    names = list(dict.fromkeys(GROUPS))
    labels = random.integers(0, 2, len(names))
    features = np.eye(len(names))[[names.index(group) for group in GROUPS]]
    return features, np.array([labels[names.index(group)] for group in GROUPS])


def test_solved_heads_choose_their_penalty_by_whole_groups() -> None:
    features, labels = grouped_features(0)
    loose, strict = (classify_linearly(Rows(features, labels, 2, groups=groups)).strength for groups in (None, GROUPS))
    assert strict > 100 * loose
    apart, whole = (Rows(features, labels.astype(np.float64), groups=groups) for groups in (None, GROUPS))
    assert regress_linearly(whole).strength > 100 * regress_linearly(apart).strength
    assert regress_words(whole).strength == max(WORD_STRENGTHS)
    assert regress_words(apart).strength < max(WORD_STRENGTHS)


@pytest.mark.parametrize(("count", "share", "kept"), [(10, 0.75, 7), (24, 0.8, 19), (3, 0.5, 1), (5, 1.0, 5)])
def test_a_split_keeps_the_whole_rows_of_its_share(count: int, share: float, kept: int) -> None:
    """Rounded down, as it is documented: one row more would be one that judges no more."""
    train, validation = split_rows(count, share, 0, "finetune", 0)
    assert (len(train), len(validation)) == (kept, count - kept)
    assert sorted(train + validation) == list(range(count))


# ----------------------------------------------------------------------------------------------- texts without labels


TEXTS = [f"film number {number} was a {word} one" for number, word in enumerate(["good", "bad", "old"] * 4)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with 16 labelled rows of 32, and a file of texts, three of which are no further ones."""
    splits = {**TASK["splits"], "unlabelled": "more.csv"}
    root = build(tmp_path / "project", tasks={"reviews": {**TASK, "splits": splits}}, methods=["vanilla", "uda"])
    write_csv(root / "data" / "more.csv", [("review",), *((text,) for text in [*TEXTS, TEXTS[0], review(0), " "])])
    return root


def context(root: Path, method: str) -> Context:
    return Context(Job(str(root), method, "reviews", "16", 0))


def test_each_further_text_is_there_once(root: Path) -> None:
    prepare(open_project(root))
    folder = root / "work" / "datasets" / "reviews"
    assert [row.text for row in read_jsonl(folder / UNLABELLED)] == TEXTS
    described = read_json(folder / "task.json")
    assert described["counts"]["unlabelled"] == len(TEXTS)
    assert described["dropped"]["unlabelled"] == {"in another set, or there twice": 2, "without text": 1}
    write_csv(root / "data" / "more.csv", [("review",), (review(0),)])
    with pytest.raises(DataError, match="no text is left"):
        prepare(open_project(root))


def test_a_step_reads_texts_beside_its_rows(root: Path) -> None:
    prepare(open_project(root))
    uda = context(root, "uda")
    inputs = phase_inputs(uda.phase("finetune"), None)
    assert len(inputs.encoded) == 16
    assert len(inputs.unlabelled) == 32 + len(TEXTS)
    assert set(inputs.unlabelled.labels) == {0}
    record = finetune(uda, search(uda))
    assert record["status"] == "ok", record["error"]
    assert any("all training rows, without their labels" in mark for mark in record["degraded"])
    # A forward pass more over three times the rows, and a step over as many: two passes of the one, and three.
    assert record["cost"]["declared_ratio"] == pytest.approx((7 + 2 * 4) / 3)
    assert evaluate(context(root, "uda"), record)["status"] == "ok"
    # Other texts are another run of those that read them alone.
    before = [context(root, name).key("finetune") for name in ("vanilla", "uda")]
    write_csv(root / "data" / "more.csv", [("review",), *((text,) for text in TEXTS[1:])])
    prepare(open_project(root))
    after = [context(root, name).key("finetune") for name in ("vanilla", "uda")]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]


def test_self_training_learns_labels_that_its_teacher_is_sure_of(root: Path) -> None:
    change(root, methods=["vanilla", "self_training"])
    prepare(project := open_project(root))
    rows = {row.cell.method: row for row in plan_rows(project)}
    # The teacher, its answers to 44 texts, which are a third of an epoch, an epoch over these, and fine-tuning.
    assert rows["self_training"].cost == pytest.approx(2 + 6 / 3 + 6 + 2)
    own = context(root, "self_training")
    found = search(own)
    assert found["status"] == "ok", found["error"]
    assert len(phase_inputs(own.phase("student"), None).encoded) == 32 + len(TEXTS)
    assert finetune(context(root, "self_training"), found)["status"] == "ok"


def test_the_file_needs_its_texts_and_no_label(root: Path) -> None:
    write_csv(root / "data" / "more.csv", [("text",), ("a film",)])
    (problem,) = problems_of(open_project, root)
    assert (problem.code, problem.key) == ("column-missing", "columns.text")

"""`regft fit`: the folder that it makes, and what is refused."""

from __future__ import annotations

import shutil
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import regft
from regft_core.api import Project
from regft_core.disk.files import write_json
from regft_core.errors import ConfigError, RunFailed
from regft_core.fit import fitting
from regft_core.fit.fitting import Wanted, decided, draft_of
from regft_core.fit.folder import make_folder_once
from regft_core.fit.own_rows import Asked
from regft_core.fit.setup import read_preset
from regft_core.grid.jobs import jobs_of
from regft_core.runs.context import Context
from regft_core.settings.project import Cell
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import RESULTS
from stages.fit import fit as main
from tests.errors import problems_of, raises_code
from tests.promises.kit import fit_folder
from tests.small_project import build, review, stage, write_csv

#: Few methods and short trainings; one of them is tuned.
PRESET = """\
always: [majority, tfidf_logistic, linear_probe]
methods: [lp_ft_share, vanilla_no_dropout]
prefer: [lp_ft_share, linear_probe]
unlabelled: [distil_unlabelled]
refit: {lp_ft_share: {train: 2}}
training: {epochs: 1, batch_size: 8, learning_rate: 1.0e-3}
tuning:
  folds: 2
  methods:
    lp_ft_share:
      - - {phases.train.training.learning_rate: 1.0e-3, phases.finetune.regularisers.wise_ft.alpha: 0.0}
        - {phases.train.training.learning_rate: 1.0e-3, phases.finetune.regularisers.wise_ft.alpha: 0.5}
    vanilla_no_dropout:
      - - {training.learning_rate: 1.0e-3}
"""


def rows(count: int = 36) -> list[tuple[str, str, str]]:
    """Rows of two classes, and four of a third: too few for five folds."""
    found = [(f"{review(n)} {n}", ["bad", "good"][n % 2], f"product {n % 9}") for n in range(count)]
    return [*found, *((f"it was odd {n}", "odd", f"odd {n}") for n in range(4))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a tiny encoder and a short preset, in which fit is called."""
    folder = fit_folder(tmp_path_factory.mktemp("fit") / "project", PRESET)
    write_csv(folder / "reviews.csv", [("review", "verdict", "product"), *rows()])
    return folder


def arguments(**options: Any) -> Namespace:
    """The command line of a fit; what is not among ``options`` is usual."""
    unset = dict.fromkeys(("pair", "group", "kind", "encoding", "delimiter", "sheet", "decimal"))
    usual = {"file": "reviews.csv", "text": "review", "label": "verdict", "minutes": 600.0, "out": None}
    return Namespace(**(unset | usual | {"model": "tiny", "seed": 0, "ood": [], "unlabelled": None} | options))


def test_a_folder_for_the_minutes_which_an_edit_keeps(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    folder, asked = root / "fits" / "reviews", {"group": "product"}
    monkeypatch.setattr("regft_core.fit.draft.EACH", 10.0)  # 360 seconds by this, or 630 with repeats: not by a clock
    make(root, folder, arguments(**asked, minutes=8.0))
    assert yaml.safe_load((folder / "params.yaml").read_text())["grid"]["seeds"] == [0, 1, 2]
    make(root, folder, arguments(**asked))  # of another call, and unedited: made anew
    params = yaml.safe_load((folder / "params.yaml").read_text())
    assert params["methods"] == ["majority", "tfidf_logistic", "linear_probe", "lp_ft_share", "vanilla_no_dropout"]
    assert params["grid"] == {"tasks": ["reviews"], "sizes": ["full"], "seeds": list(range(6))}
    assert {name for name, trials in params["tuning"]["methods"].items() if trials} == {"lp_ft_share"}
    settings = {"vanilla_no_dropout": {"training": {"learning_rate": 1e-3}}}
    assert params["method_settings"] == settings | {"lp_ft_share": {"phases": {"train": {"refit": 2}}}}
    # The rows have under 16 tokens; new texts may have more.
    assert params["model"]["max_length"] == 128
    task = yaml.safe_load((folder / "pipelines" / "tasks" / "reviews.yaml").read_text())
    assert task["splits"] == {"train": "reviews.csv", "dev": {"folds": 3, "repeats": 2}}
    assert task["columns"] == {"text": "review", "label": "verdict", "group": "product"}
    assert task["labels"] == ["bad", "good", "odd"]
    assert task["primary"] == "f1_macro"
    assert "f1_macro, because 'odd' has under a fifth of the rows" in capsys.readouterr().out
    assert "ood" not in task
    open_project(folder)
    write_csv(root / "later.csv", [("review", "verdict"), *((review(n), ["good", ""][n % 2]) for n in range(40))])
    make(root, folder, arguments(**asked, ood=[Path("later.csv")]))
    task = yaml.safe_load((folder / "pipelines" / "tasks" / "reviews.yaml").read_text())
    declared = {"source": {"kind": "files"}, "split": "later.csv", "drop_labels": [""]}
    assert task["ood"] == {"later": declared}
    assert "out of distribution: later, 20 rows" in capsys.readouterr().out
    assert open_project(folder).tasks["reviews"].ood["later"].split == "later.csv"
    write_csv(root / "more.csv", [("review",), *((f"{review(n)} more {n}",) for n in range(20))])
    make(root, folder, arguments(**asked, unlabelled=Path("more.csv")))
    assert open_project(folder).tasks["reviews"].splits.unlabelled == "more.csv"
    methods = yaml.safe_load((folder / "params.yaml").read_text())["methods"]
    assert methods[3:] == ["lp_ft_share", "distil_unlabelled", "vanilla_no_dropout"]
    (folder / "pipelines" / "tasks" / "mine.yaml").write_text("# mine\n")
    make(root, folder, arguments(**asked))
    assert (folder / "pipelines" / "tasks" / "mine.yaml").is_file()
    for name in ("data/reviews.csv", "dvc.yaml"):
        as_made = (folder / name).read_bytes()
        (folder / name).write_bytes(as_made + b"\n")
        with raises_code(ConfigError, "edited", name):
            make(root, folder, arguments(**asked, minutes=601.0))
        (folder / name).write_bytes(as_made)
    capsys.readouterr()
    file = folder / "params.yaml"
    file.write_text(file.read_text() + "# mine\n")
    make(root, folder, arguments(**asked))
    assert "going on with it" in capsys.readouterr().out
    with raises_code(ConfigError, "edited", "params.yaml was edited", "from the first in minutes", "rows in its data/"):
        make(root, folder, arguments(**asked, minutes=601.0))
    preset = root / "pipelines" / "own_data.yaml"
    preset.write_text(PRESET.replace("epochs: 1", "epochs: 2"))
    with raises_code(ConfigError, "edited", "from the first in preset"):
        make(root, folder, arguments(**asked))
    preset.write_text(PRESET)
    assert file.read_text().endswith("# mine\n")


def test_an_encoder_that_does_not_read_the_texts_is_not_trained(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    lines = [(f"{'质量很好' * (n % 7)} 不 {n}", ["bad", "good"][n % 2]) for n in range(40)]
    write_csv(root / "foreign.csv", [("review", "verdict"), *lines])
    make(root, root / "fits" / "foreign", arguments(file="foreign.csv"))
    params = yaml.safe_load((root / "fits" / "foreign" / "params.yaml").read_text())
    assert params["methods"] == ["majority", "tfidf_logistic", "linear_probe"]


def test_enough_rows_of_each_label_get_a_forecast(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    lines = [(f"{review(n)} {n}", ["bad", "good"][n % 2]) for n in range(100)]
    write_csv(root / "hundred.csv", [("review", "verdict"), *lines])
    make(root, root / "fits" / "hundred", arguments(file="hundred.csv"))
    params = yaml.safe_load((root / "fits" / "hundred" / "params.yaml").read_text())
    assert params["grid"]["sizes"] == ["full", 40, 20]


def test_what_there_was_no_time_for_is_left_out_and_said_and_more_minutes_bring_it_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    folder, done = root / "fits" / "late", list[str]()
    shutil.copy(root / "reviews.csv", root / "late.csv")

    def computed(_: Path, __: str, only: list[str], ___: Any) -> None:
        if only == ["lp_ft_share"]:
            time.sleep(60)
        done.extend(only)

    for name, answer in {
        "compute_only": computed,
        "decided": lambda *_: ("linear_probe", {}),
        "refit": lambda *_, **__: None,
        "export": lambda _: folder,
    }.items():
        monkeypatch.setattr(fitting, name, answer)
    until, moments = fitting._until, iter([60.0, 0.5, 0.5, 60.0])  # of the call, of its comparison
    monkeypatch.setattr(fitting, "_until", lambda _: until(time.monotonic() + next(moments)))
    asked = Asked(Path("late.csv"), "review", "verdict")
    taken = fitting.fit_rows(Wanted(root, asked, str(folder), 600.0, "tiny"), lambda _: None)
    assert done == ["majority", "tfidf_logistic", "linear_probe"]
    assert taken.not_run == ("lp_ft_share", "vanilla_no_dropout")
    assert list(open_project(folder).methods) == ["majority", "tfidf_logistic", "linear_probe"]
    again = Namespace(**{**vars(arguments()), "file": "late.csv"})
    make(root, folder, again)  # the same call: the same result
    params = open_project(folder).params
    assert (len(params.methods), params.report.prefer, params.report.tolerance) == (
        3,
        ("linear_probe",),
        6.3,
    )  # 40 rows
    make(root, folder, Namespace(**{**vars(again), "minutes": 700.0}))
    methods, report = (params := open_project(folder).params).methods, params.report
    assert methods[3:] == ("lp_ft_share", "vanilla_no_dropout")
    assert (report.prefer, report.not_run) == (("lp_ft_share", "linear_probe"), ())
    monkeypatch.setattr(fitting, "compute_only", lambda *_: None)
    with raises_code(RunFailed, "out-of-time", "it goes on"):
        fitting.fit_rows(Wanted(root, asked, str(folder), 700.0, "tiny"), lambda _: time.sleep(60))
    record, written = folder / "fit.json", (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(
        one := written.replace("prefer: [lp_ft_share, linear_probe]", "prefer: [lp_ft_share]")
    )
    assert one != written
    fitting.leave_out(folder, ["lp_ft_share"])
    report = open_project(folder).params.report
    assert (report.prefer, report.tolerance) == ((), 0.0)
    (folder / "params.yaml").write_text(one)
    record.write_text(record.read_text().replace('"ood": {}', '"ood": {"products": ""}'))
    fitting.leave_out(folder, ["lp_ft_share"])
    assert open_project(folder).params.report.tolerance == 6.3  # as it was: within it other texts decide


def test_the_runs_of_a_first_repeat_are_compared_where_there_was_no_time_for_the_second(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    method, folder, calls = "vanilla_no_dropout", root / "fits" / "twice", list[str]()
    write_csv(root / "twice.csv", [("review", "verdict"), *((f"{review(n)} {n}", "ab"[n % 2]) for n in range(20))])
    make(root, folder, arguments(file="twice.csv"))
    fitting.leave_out(folder, ["lp_ft_share"])
    written, compute = (folder / "params.yaml").read_text(), fitting.compute_only

    def computed(place: Path, _: str, only: list[str], say: Any) -> None:
        calls.extend(only)
        if only == [method] and calls.count(method) == 1:
            fitting.leave_out(place, [], range(5))
            compute(place, "finetune", only, say)
            (folder / "params.yaml").write_text(written)
            raise fitting.OutOfTime

    monkeypatch.setattr(fitting, "compute_only", computed)
    fitting._compare(folder, "twice", read_preset(root), time.monotonic() + 600, print)
    assert (calls.count(method), open_project(folder).params.grid.seeds) == (2, (0, 1, 2, 3, 4))
    report = open_project(folder).params.report
    assert (report.prefer, report.not_run) == (("linear_probe",), ("the second repeat of the folds",))
    (folder / "params.yaml").write_text(written)
    project = open_project(folder)
    run = Context(jobs_of(project, Cell(method, "twice", "full"))[4], project=project)
    shutil.rmtree(run.store.directory(run.last.key()))
    shutil.rmtree(folder / "work" / "finetune")
    assert fitting._first_repeat(folder, "twice", method) == ()


def test_an_alarm_that_is_lost_rings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        def __del__(self) -> None:  # what is raised here is printed, and ignored
            time.sleep(0.3)

    monkeypatch.setattr(fitting, "AGAIN", 0.2)
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    began = time.monotonic()
    lost = [Lost()]

    def last() -> None:
        lost.clear()
        time.sleep(60)

    with pytest.raises(fitting.OutOfTime), fitting._until(began + 0.1):
        last()
    assert lost == []
    assert time.monotonic() - began < 30


def make(root: Path, folder: Path, given: Namespace) -> None:
    columns = given.text, given.label, given.pair, given.group
    asked = Asked(Path(given.file), *columns, ood=tuple(given.ood), unlabelled=given.unlabelled)
    draft = draft_of(Wanted(root, asked, str(folder), given.minutes, given.model, given.seed))
    print("\n".join(make_folder_once(draft, folder)))


#: (what is given, codes of the problems)
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"unlabelled": Path("lost.csv")}, ["file-missing"]),
    ({"unlabelled": Path("half.jsonl")}, ["not-text"]),
    ({"unlabelled": Path("reviews.csv"), "text": "product"}, ["name-taken"]),
    ({"file": "reviws.csv"}, ["file-missing"]),
    ({"text": "reviw", "label": "verdikt"}, ["column-missing", "column-missing"]),
    ({"label": "review"}, ["same-column"]),
    ({"pair": "review"}, ["same-column"]),
    ({"group": "verdict"}, ["same-column"]),
    ({"file": "one-class.csv"}, ["one-class"]),
    ({"file": "one-row.csv"}, ["too-few-rows"]),
    ({"file": "unlabelled.csv"}, ["too-few-rows"]),
    ({"file": "one-text.csv"}, ["one-text"]),
    ({"encoding": "latin-eins"}, ["invalid-value"]),
    ({"delimiter": ";;"}, ["invalid-value"]),
    ({"file": "notes"}, ["unknown-format"]),
    ({"file": "folder.csv"}, ["not-a-file"]),
    ({"file": "halves.csv", "group": "half"}, ["too-few-groups"]),
    ({"file": "thirds.csv", "group": "third"}, ["class-missing"]),
    ({"file": "copies.csv"}, ["class-missing"]),
    ({"seed": 99}, ["wrong-seed"]),
    ({"file": "rare.csv"}, ["rare-label"]),
    ({"file": "levels.csv", "kind": "ordinal"}, ["rare-label"]),
    ({"file": "ids.csv"}, ["too-many-labels"]),
    ({"kind": "regression"}, ["not-a-number"]),
    ({"minutes": 0.0}, ["wrong-minutes"]),
    ({"minutes": 0.01}, ["too-few-minutes"]),
    ({"model": "tiny/none"}, ["model-missing"]),
    ({"model": "of-another"}, ["file-missing"]),
    ({"unlabelled": Path("empty.csv")}, ["no-rows"]),
    ({"out": "taken"}, ["in-the-way"]),
    ({"out": "of-another"}, ["in-the-way"]),
    ({"ood": ["reviws.csv"]}, ["file-missing"]),
    ({"ood": ["reviews.csv"]}, ["name-taken"]),
    ({"ood": ["halves.csv"]}, ["too-few-rows"]),
    ({"ood": ["hundred.csv", "ids.csv"]}, ["unknown-label"]),
    ({"ood": ["notes"]}, ["unknown-format"]),
    ({"out": "taken", "text": "reviw", "minutes": -1.0}, ["column-missing", "wrong-minutes", "in-the-way"]),
]


def files(root: Path) -> list[str]:
    """What lies there, but for what is fetched."""
    return sorted(path.as_posix() for path in root.rglob("*") if path.name not in (".models", ".datasets"))


@pytest.mark.parametrize(("given", "codes"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_a_wrong_use_is_refused_before_anything_is_written(
    root: Path, given: dict[str, Any], codes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, two = ("review", "verdict"), ["good", "bad"]
    for name, lines in {
        "one-class": [head, *((review(n), "good") for n in range(12))],
        "empty": [head, *((" ", "") for _ in range(4))],
        "one-row": [head, (review(1), "good")],
        "rare": [head, *((review(n), "good") for n in range(12)), ("x", "odd")],
        "ids": [head, *((review(n), f"id {n}") for n in range(12))],
        "unlabelled": [head, *((review(n), "") for n in range(8))],
        "hundred": [head, *((review(n), two[n % 2]) for n in range(100))],
        "one-text": [head, *(("the same", two[n % 2]) for n in range(12))],
        "halves": [(*head, "half"), *((review(n), two[n % 2], n % 4 // 2) for n in range(12))],
        "thirds": [(*head, "third"), *((f"{review(n)} {n}", two[n // 3 % 3 // 2], n // 3 % 3) for n in range(18))],
        "copies": [head, *((f"{review(n)} {n}", "good") for n in range(12)), *[("the same", "bad")] * 6],
        "levels": [head, *((f"{review(n)} {n}", 1 + n % 2) for n in range(12)), ("x", 3)],
    }.items():
        write_csv(root / f"{name}.csv", lines)
    (root / "notes").write_text("review\n")
    (root / "half.jsonl").write_text('{"review": "half of a pair \\ud83d"}\n')
    for name in ("folder.csv", "taken", "of-another"):
        (root / name).mkdir(exist_ok=True)
    (root / "taken" / "mine.txt").write_text("mine")
    (root / "of-another" / "fit.json").write_text('{"from": {"file": "/elsewhere/reviews.csv"}, "wrote": {}}')
    before = files(root)
    monkeypatch.chdir(root)
    problems = problems_of(main, Path(), arguments(**({"out": "other/place"} | given)))
    assert [problem.code for problem in problems] == codes
    assert files(root) == before


@pytest.mark.parametrize("name", ["reviews.v2", "r" * 70])
def test_files_of_data_frames_have_names_of_their_own(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"text": [review(n) for n in range(40)], "label": ["bad", "good"] * 20})
    given: dict[str, Any] = {"text": "text", "label": "label", "minutes": 0, "project": tmp_path / name}
    problems = problems_of(lambda: regft.fit(frame, ood=[frame, frame], **given))
    assert "name-taken" not in [problem.code for problem in problems]


def test_a_file_may_have_the_name_of_a_shipped_task(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    shutil.copy(root / "reviews.csv", root / "mrpc.csv")
    make(root, root / "fits" / "mrpc", arguments(file="mrpc.csv", minutes=1.5))
    assert open_project(root / "fits" / "mrpc").tasks["mrpc"].labels == ("bad", "good", "odd")


def test_a_constant_answer_is_never_exported(tmp_path: Path) -> None:
    """Nor a method where none is expected to be better than one."""
    names = ["majority", "tfidf_logistic", "tfidf_logistic_characters"]
    grid, report = {"sizes": ["full"], "seeds": [1]}, {"reference": "majority"}
    folder = build(tmp_path, methods=names, grid=grid, report=report)
    for name in names:
        Project.open(folder).run(name, "reviews")
    for losses, exported in (
        ([0.0], False),
        ([0.0, 0.0], False),
        ([0.1, 0.0], True),
        ([0.3, 0.4, 0.0], True),  # other texts decided for it; a third is better than the constant answer
    ):
        found = {name: {"decision": {"expected_loss": loss}} for name, loss in zip(names, losses, strict=False)}
        found[names[min(1, len(losses) - 1)]]["decision"]["taken"] = True
        write_json(folder / RESULTS, {"reviews-full": found})
        if exported:
            assert decided(folder, "reviews")[0] == "tfidf_logistic"
        else:
            with raises_code(RunFailed, "constant-answer", "majority", "no model was exported"):
                decided(folder, "reviews")


def test_a_model_is_looked_up_in_the_working_directory(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "tiny", tmp_path / "tiny")
    asked = Asked(root / "reviews.csv", "review", "verdict")
    for model in ("tiny", str(tmp_path / "tiny")):  # the working directory is no project
        assert draft_of(Wanted(tmp_path, asked, model=model)).encoders == [str(tmp_path / "tiny")]
    assert Wanted(root, asked, model="tiny").encoder == "tiny"


def test_an_empty_folder_takes_the_methods_of_the_code(tmp_path: Path) -> None:
    write_csv(tmp_path / "rows.csv", [("review", "verdict"), *((text, label) for text, label, _ in rows())])
    done = stage(tmp_path, "fit", "rows.csv", "--text", "reviews", "--label", "verdict", "--model", "minilmm")
    assert done.returncode == 2
    assert "no column 'reviews'" in done.stderr
    assert "--model: 'minilmm'" in done.stderr  # both in one message
    assert "did you mean 'minilm'" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.utils.validation import NotFittedError

import regft
from regft_core.api import Project
from regft_core.errors import ConfigError, DataError
from regft_core.grid.repro import repro
from regft_core.runs import run_phase
from tests.errors import codes_of, raises_code
from tests.small_project import TASK, build, review, stage, write_csv
from tests.tiny import tiny_model_dir


def test_run_and_results_are_those_of_the_pipeline(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["vanilla", "hype_n"])
    project = Project.open(root)
    assert isinstance(project, Project)
    assert project.results().empty
    assert "No run" in project.results()._repr_html_()
    project.run("vanilla", "reviews")
    own = project.results()  # the other method was not run
    assert list(zip(own["method"], own["set"], own["metric"])) == [
        ("vanilla", "dev", "accuracy"),
        ("vanilla", "shop", "accuracy"),
    ]
    project.run("hype_n", "reviews")
    results = project.results()

    done = stage(root, "report")
    assert done.returncode == 0, done.stderr
    reported = json.loads((root / "reports" / "results.json").read_text())["reviews-16"]
    for score in results.to_dict("records"):
        cell = reported[score["method"]][score["set"]][score["metric"]]
        assert (score["mean"], score["low"], score["high"]) == (cell["mean"], cell["low"], cell["high"])
        compared = reported[score["method"]].get("versus_reference", {})
        assert ([score["vs_reference"]] if compared else []) == [
            sets[score["set"]]["verdict"] for sets in compared.values()
        ]
        assert bool(compared) is (score["method"] == "hype_n")
        assert score["no_better_than_constant"] is (
            score["set"] in reported[score["method"]]["no_better_than_constant"]
        )
        assert score["primary"]
        assert (score["seed 0"] + score["seed 1"]) / 2 == pytest.approx(score["mean"])
    for pair in results.verdicts.to_dict("records"):
        cell = reported[pair["method"]]["versus_reference"][pair["other"]][pair["set"]]
        assert (pair["verdict"], pair["low"], pair["high"]) == (cell["verdict"], *cell["simultaneous"].values())
    assert results.verdicts["other"].tolist() == ["vanilla", "vanilla"]

    shown, printed = html.unescape(re.sub("<[^>]*>", "", results._repr_html_())).split(), done.stdout.split()
    start = printed.index("On")  # both begin with the decision
    assert shown[:60] == printed[start : start + 60]
    assert "<span style=" in results._repr_html_()
    assert 'class="dataframe"' in results[results["primary"]]._repr_html_()  # a selection is an ordinary data frame

    params = yaml.safe_load((root / "params.yaml").read_text())
    params["grid"] |= {"seeds": [0]}
    params["methods"] = ["vanilla"]
    (root / "params.yaml").write_text(yaml.dump(params))
    project.run("vanilla", "reviews")
    (single, _) = project.results().to_dict("records")
    assert single["seeds"] == 1
    assert math.isnan(single["low"])
    assert "seed 1" not in single


def test_scores_of_before_an_edit_are_not_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = build(tmp_path / "project", methods=["majority", "linear_probe"], report={"reference": "majority"})
    project = Project(str(root))
    project.run()
    assert set(project.results()["method"]) == {"majority", "linear_probe"}
    project.set("model.max_length", np.int64(16))
    assert not len(project.results())  # nothing was run since
    assert "outdated-evaluation" in stage(root, "report").stderr
    project.set("model.max_length", 32)
    with monkeypatch.context() as without:
        without.setattr(run_phase, "resolve_model", None)  # the encoder may be on no disk
        assert set(project.results()["method"]) == {"majority", "linear_probe"}
    rows = [(review(n), ["good", "bad"][n % 2]) for n in range(32)]  # every label is the other one
    write_csv(root / "data" / "train.csv", [("review", "verdict"), *rows])
    project.run("majority")
    assert set(project.results()["method"]) == {"majority"}
    assert "linear_probe/reviews/16" in caplog.text
    assert "outdated-evaluation" in stage(root, "report").stderr


def test_scripts_get_the_results_as_json_whatever_the_labels_and_the_code_of_the_stage_that_failed(
    tmp_path: Path,
) -> None:
    labels = {"reviews": {**TASK, "labels": ["bad", "go\x92d"]}}
    root = build(tmp_path / "project", tasks=labels, methods=["majority"], report={"reference": "majority"})
    for file in (root / "data").glob("*.csv"):
        file.write_text(file.read_text().replace(",good", ",go\x92d"))
    Project(root).run()
    assert stage(root, "report", "--json").stdout == (root / "reports/results.json").read_text()
    (root / ".dvc").mkdir()
    (root / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
    (root / "params.yaml").write_text("epochz: 1\n")
    assert repro(root) == ConfigError.exit_code


def test_settings_are_edited_in_place_and_the_plan_counts_runs(tmp_path: Path) -> None:
    root = build(tmp_path / "project", methods=["majority", "vanilla"])
    file = root / "params.yaml"
    file.write_text("# mine\n" + file.read_text())
    project = Project.open(root)
    project.set("training.epochs", 2)
    assert file.read_text().startswith("# mine\n")
    assert yaml.safe_load(file.read_text())["training"]["epochs"] == 2
    before = file.read_text()
    with raises_code(ConfigError, "unknown-key", "epochz"):
        project.set("training.epochz", 2)
    with raises_code(ConfigError, "not-a-mapping", "epochs"):
        project.set("training.epochs.first", 2)
    assert file.read_text() == before
    file.write_text(before + "method_settings:\n  vanilla: &x {training: {epochs: 2}}\n  majority: *x\n")
    with raises_code(ConfigError, "shared-value", "&x"):
        project.set("method_settings.vanilla.training.epochs", 3)
    file.write_text(before)
    project.run("majority")
    plan = project.plan().set_index("method")
    assert plan["to_train"].to_dict() == {"majority": 0, "vanilla": 2}
    assert plan["cost"]["vanilla"] > plan["cost"]["majority"] == 0


# ------------------------------------------------------------------------------------------ classifier


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A working directory that is a project, so that nothing is written elsewhere, and a tiny encoder there."""
    (tmp_path / "params.yaml").write_text("execution: {executor: serial, device: cpu}\n")
    monkeypatch.chdir(tmp_path)
    return str(tiny_model_dir(tmp_path, "bert"))


TEXTS = [f"{review(n)} {n}" for n in range(24)]
#: Texts by kind, as ``fit`` takes them.
INPUTS: dict[str, Any] = {
    "texts": TEXTS,
    "column": pd.Series(TEXTS, index=range(100, 124)),
    "pairs": pd.DataFrame({"one": TEXTS, "other": TEXTS[::-1]}),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_a_frozen_probe_is_cross_validated(encoder: str, capfd: pytest.CaptureFixture[str], kind: str) -> None:
    labels = np.array([7 if n % 2 else 3 for n in range(24)])  # numbers stay numbers
    probe = regft.Classifier(model=encoder)
    assert clone(probe).get_params() == {"method": "linear_probe", "model": encoder, "seed": 0}
    with pytest.raises(NotFittedError):
        probe.predict(TEXTS)
    answers = cross_val_predict(probe, INPUTS[kind], labels, cv=2, method="predict_proba")
    assert answers.shape == (24, 2)
    assert answers.sum(axis=1) == pytest.approx(1)
    fitted = probe.fit(INPUTS[kind], labels)
    assert fitted.classes_.tolist() == [3, 7]
    most_probable = fitted.predict_proba(INPUTS[kind]).argmax(axis=1)
    assert fitted.predict(INPUTS[kind]).tolist() == fitted.classes_[most_probable].tolist()
    with raises_code(DataError, "column-missing"):  # columns without names were a TypeError
        fitted.model_.predict(pd.DataFrame([["a", "b"]]))
    if kind == "texts":
        assert fitted.score(TEXTS, labels) == 1  # the first word tells the label, and folds are told apart
        assert (answers.argmax(axis=1) == labels // 7).mean() > 0.9
    assert capfd.readouterr().out == ""

    loaded = regft.load_model(fitted.model_.path)
    names = [str(label) for label in labels]
    assert is_classifier(loaded)
    if kind == "pairs":
        pairs = tuple(INPUTS[kind].itertuples(index=False, name=None))[:2]
        assert loaded.predict(pairs).tolist() == loaded.predict(list(pairs)).tolist()
        assert loaded.predict(np.array(pairs)).tolist() == fitted.predict(np.array(pairs)).astype(str).tolist()
    else:
        assert loaded.score(INPUTS[kind], labels) == fitted.score(INPUTS[kind], labels) > 0.5
        assert cross_val_score(loaded, INPUTS[kind], names, cv=2).mean() == fitted.score(INPUTS[kind], labels)
    assert loaded.set_params(precision="fp32").get_params()["precision"] == "fp32"


def test_wrong_parameters_are_errors_of_regft(encoder: str) -> None:
    labels = [n % 2 for n in range(24)]
    with raises_code(ConfigError, "unknown-method", "linear_probe"):
        regft.Classifier("linear_prob", encoder).fit(TEXTS, labels)
    with raises_code(ConfigError, "one-class"):
        regft.Classifier(model=encoder).fit(TEXTS, [1] * 24)
    with raises_code(DataError, "missing-label"):
        regft.Classifier(model=encoder).fit(TEXTS, ["a", None] * 12)


def test_python_reads_a_file_as_it_is_written(encoder: str, tmp_path: Path) -> None:
    lines = ["grade\u00fc;review", *(f"{n},5;{review(n)} {n}" for n in range(12))]
    (tmp_path / "other.csv").write_bytes("\n".join(lines).encode("cp1252"))
    frame = pd.DataFrame({"grade\u00fc": [f"{n},5" for n in range(12)], "review": [review(n) for n in range(12)]})
    how = {"encoding": "cp1252", "delimiter": ";", "decimal": ","}
    for data, written, codes in (
        ("other.csv", how, ["wrong-minutes"]),
        (frame, how, ["wrong-minutes"]),
        (frame.assign(gradeü=[n + 0.5 for n in range(12)]), {**how, "kind": "regression"}, ["wrong-minutes"]),
        (frame.assign(review=frame["review"] + "\r\rend\r"), how, ["wrong-minutes"]),
        (frame.assign(review=[{text} for text in frame["review"]]), how, ["not-text"]),
        (frame.assign(shop=pd.Categorical(["one"] * 12)), how, ["wrong-minutes"]),
        (frame.assign(review="\u597d"), how, ["not-in-encoding"]),
        ("other.csv", {}, ["not-utf8", "wrong-minutes"]),
        (frame, {"delimiter": ";;"}, ["invalid-value"]),
        (frame.assign(review=[np.array(text.split()) for text in frame["review"]]), how, ["wrong-minutes"]),
    ):
        columns = {"text": "review", "label": "grade\u00fc"}
        with pytest.raises(ConfigError) as error:
            regft.fit(data, **columns, **written, minutes=0, model=encoder, project="python/rows")
        assert codes_of(error.value) == codes
    written = pd.read_csv("python/.regft-fit/rows.csv", sep=";", encoding="cp1252")
    assert written["review"].tolist() == frame["review"].tolist()  # a list of keywords is one text, as in a file

"""``regft.Classifier`` and a loaded model are estimators of scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.utils.validation import NotFittedError

import regft
from regft_core.errors import ConfigError
from tests.errors import raises_code
from tests.small_project import review
from tests.tiny import tiny_model_dir


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A working directory that is a project, so that nothing is written elsewhere, and a tiny encoder there."""
    (tmp_path / "params.yaml").write_text("execution: {executor: processes, workers: 2, device: cpu}\n")
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
    if kind == "texts":
        assert fitted.score(TEXTS, labels) == 1  # the first word tells the label, and folds are told apart
        assert (answers.argmax(axis=1) == labels // 7).mean() > 0.9
    assert capfd.readouterr().out == ""

    loaded = regft.load_model(fitted.model_.path)
    names = [str(label) for label in labels]
    assert is_classifier(loaded)
    if kind != "pairs":
        assert cross_val_score(loaded, INPUTS[kind], names, cv=2).mean() == fitted.score(INPUTS[kind], labels)
    assert loaded.set_params(precision="fp32").get_params()["precision"] == "fp32"


def test_wrong_parameters_are_errors_of_regft(encoder: str) -> None:
    labels = [n % 2 for n in range(24)]
    with raises_code(ConfigError, "unknown-method", "linear_probe"):
        regft.Classifier("linear_prob", encoder).fit(TEXTS, labels)
    with raises_code(ConfigError, "one-class"):
        regft.Classifier(model=encoder).fit(TEXTS, [1] * 24)

"""A method as a classifier of scikit-learn: ``cross_val_score``, ``GridSearchCV`` and pipelines take it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from regft_core.errors import DataError
from regft_core.fit.fitting import Wanted, fit_method
from regft_core.fit.own_rows import Asked
from regft_core.lazy import Array, np
from regft_core.serve.loaded import LoadedModel, Text

#: Texts, pairs of texts, or a data frame with one or two columns of them.
Texts: TypeAlias = "Sequence[Text] | pd.Series | pd.DataFrame | Array"


class Classifier(ClassifierMixin, BaseEstimator):
    """One method, trained on all rows that ``fit`` is given; nothing is compared or tuned.

    Args:
        method: as ``regft methods`` lists them; the default trains a logistic regression over a frozen encoder.
        model: encoder, an alias or a directory; the strongest on this disk when absent.

    Attributes:
        classes_: [K] the labels, sorted, as they were given.
        model_: the model, loaded; ``model_.path`` is its folder, which goes with this object: copy it to keep it.
    """

    method: str
    model: str | None
    seed: int
    classes_: Array
    model_: LoadedModel

    def __init__(self, method: str = "linear_probe", model: str | None = None, seed: int = 0) -> None:
        self.method, self.model, self.seed = method, model, seed

    def fit(self, X: Texts, y: Sequence[Any] | Array | pd.Series) -> Classifier:
        """Train on n texts or pairs ``X`` and their labels ``y`` [n]. Raises ConfigError, DataError, RunFailed."""
        if pd.isna(np.asarray(y, dtype=object)).any():
            raise DataError("missing-label", "y has missing labels\n    -> leave these rows out")
        # Files of rows are read without spaces around a label.
        labels = np.unique(np.asarray(y)).tolist()
        named = {str(label).strip(): label for label in labels}
        if len(named) < len(labels):
            raise DataError("labels-alike", "two labels of y are written alike\n    -> give each its own name")
        rows = pd.DataFrame(_rows(X))
        if rows.shape[1] > 2:
            raise DataError("wrong-texts", f"X has {rows.shape[1]} columns\n    -> give one text a row, or two")
        columns = [("text", "pair")[place] for place in range(rows.shape[1])]
        rows = rows.set_axis(columns, axis="columns").assign(label=[str(label) for label in np.asarray(y).tolist()])
        self._folder = TemporaryDirectory(prefix="regft-")
        file = Path(self._folder.name) / "rows.jsonl"
        rows.to_json(file, orient="records", lines=True, force_ascii=False)
        asked = Asked(file, "text", "label", "pair" if "pair" in columns else None, kind="classification")
        wanted = Wanted(Path.cwd(), asked, str(file.parent / "project"), model=self.model, seed=self.seed)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.model_ = LoadedModel(fit_method(wanted, self.method))  # the card has what weakens the model
        learned = self.model_.classes_.tolist()  # a label with a row or two may be left out, as in `regft fit`
        order = sorted(learned, key=lambda name: list(named).index(name) if name in named else len(named))
        self._places = [learned.index(name) for name in order]
        self._labels = {name: named.get(name, name) for name in learned}
        self.classes_ = np.array([self._labels[name] for name in order])
        return self

    def predict(self, X: Texts) -> Array:
        """Return [n] labels. Raises DataError for a row without a text."""
        check_is_fitted(self)
        return np.array([self._labels[name] for name in self.model_.predict(_rows(X)).tolist()])

    def predict_proba(self, X: Texts) -> Array:
        """Return [n, K] probabilities in the order of ``classes_``. Raises DataError for a row without a text."""
        check_is_fitted(self)
        return self.model_.predict_proba(_rows(X))[:, self._places]


def _rows(X: Texts) -> list[Any]:
    """Return texts as a list of strings or of pairs; a column of a data frame stays one text."""
    return list(X.itertuples(index=False, name=None) if isinstance(X, pd.DataFrame) else X)

"""An exported model in Python: texts in, answers out, by the names of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator

from regft_core.data.examples import Example, WrongText
from regft_core.data.file_format import Row
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.kinds._reading import as_text, listed_labels, to_number
from regft_core.kinds.multi_label import SEPARATOR
from regft_core.models.devices import visible_devices
from regft_core.names import listing
from regft_core.serve.answers import Counted, answers, example_of
from regft_core.serve.model import load_served

#: One text, or a pair of texts.
Text = str | tuple[str, str]


class LoadedModel(BaseEstimator):
    """A model in a folder that ``regft export`` or ``fit`` wrote; nothing is downloaded.

    Texts are a string, a list of strings, of pairs for a model of pairs, a column, or a data frame with the columns of
    the training file. To scikit-learn it is a fitted estimator that stays as it is.

    Attributes:
        path, device, precision: as ``load_model`` was given them.
        classes_: [K] labels, in the order of ``predict_proba``; ``["value"]`` for a regression.
    """

    path: Path
    device: str
    precision: str
    classes_: npt.NDArray[Any]

    def __init__(self, path: Path | str, device: str = "auto", precision: str = "fp32") -> None:
        self.path, self.device, self.precision = Path(path), device, precision
        self._load()

    def _load(self) -> None:
        self._model = load_served(Path(self.path), visible_devices(self.device)[0], self.precision)
        self.classes_ = np.array(self._model.labels if find(self._model.served.kind).has_labels else ["value"])

    def set_params(self, **params: Any) -> LoadedModel:
        """Load again with another ``path``, ``device`` or ``precision``; return itself. Raises ModelError."""
        super().set_params(**params)
        self._load()
        return self

    def fit(self, X: Any, y: Any = None) -> LoadedModel:
        """Return the model as it is: scikit-learn's tools call this before they evaluate it."""
        return self

    def __sklearn_clone__(self) -> LoadedModel:
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier" if find(self._model.served.kind).has_labels else "regressor"
        return tags

    def predict(self, texts: Text | Iterable[Text] | pd.DataFrame) -> npt.NDArray[Any]:
        """Return [n] labels, values, or lists of labels; None where it abstains. DataError for a row without a text."""
        given = [line.get("prediction") for line in self.lines(texts)]
        if self._joined:
            given = [None if one is None else [part for part in one.split(SEPARATOR) if part] for one in given]
        plain = not self._joined and None not in given
        return np.array(given) if plain else pd.Series(given, dtype=object).to_numpy()

    def lines(self, texts: Text | Iterable[Text] | pd.DataFrame) -> list[dict[str, Any]]:
        """Return the columns that ``regft predict`` writes for each text. Raises DataError as ``predict``."""
        return list(answers(self._model, self._examples(texts), Counted()))

    def predict_proba(self, texts: Text | Iterable[Text] | pd.DataFrame) -> npt.NDArray[np.float64]:
        """Return [n, K] probabilities in the order of ``classes_``. DataError without a text, and of a regression."""
        if not find(self._model.served.kind).has_labels:
            raise DataError("no-probabilities", f"{self.path} predicts a value\n    -> call predict")
        examples = self._examples(texts)
        found: Any = self._model.scores(examples) if examples else []
        return np.asarray(found, dtype=np.float64).reshape(len(examples), len(self.classes_))

    def score(self, texts: Iterable[Text] | pd.DataFrame, labels: Iterable[Any]) -> float:
        """Return the share of rows that are answered rightly, labels as frames have the training file's; else R^2."""
        from sklearn.metrics import r2_score

        right, given = [plain(label) for label in labels], self.predict(texts)
        if not find(self._model.served.kind).has_labels:
            return float(r2_score(right, given))
        return float(np.mean([self._is_right(one, other) for one, other in zip(right, given, strict=True)]))

    def _is_right(self, label: Any, answer: Any) -> bool:
        if answer is None:
            return False
        if not self._joined:  # pandas reads TRUE as a truth value and 1.50 as a number
            spelled, typed = (str(label).strip(), as_text(label)), isinstance(label, int | float)
            return answer in spelled or (typed and (answer.lower() in spelled or to_number(answer) == label))
        if as_text(label) is None:
            label = ()
        elif isinstance(label, str):
            text = label.replace(self._model.served.label_delimiter, SEPARATOR)
            label = text.split(SEPARATOR) if (listed := listed_labels(label)) is None else listed
        return {as_text(one) for one in label} - {""} == set(answer)

    @property
    def _joined(self) -> bool:
        kind = find(self._model.served.kind)
        return kind.has_labels and not kind.one_label

    def _examples(self, texts: Text | Iterable[Text] | pd.DataFrame) -> list[Example]:
        names = self._model.columns
        if isinstance(texts, pd.DataFrame):
            if missing := [name for name in names if name not in texts.columns]:
                hint = f"columns of the training file: {', '.join(names)}; there are {listing(map(str, texts.columns))}"
                raise DataError("column-missing", f"no column '{missing[0]}' in the data frame\n    -> {hint}")
            rows: list[Any] = [tuple(map(plain, row)) for row in texts[names].itertuples(index=False, name=None)]
        else:
            is_pair = isinstance(texts, tuple) and len(names) == 2 and all(isinstance(part, str) for part in texts)
            given: Any = [texts] if is_pair or isinstance(texts, str) else texts
            rows = [row if isinstance(row, tuple | list | np.ndarray) else (row,) for row in given]
        examples = list[Example]()
        for number, row in enumerate(rows):
            if len(row) != len(names):
                message = f"row {number} has {len(row)} texts; this model reads {len(names)}"
                hint = "give pairs (one, other) to a model of pairs, else a text"
                raise DataError("wrong-texts", f"{message}\n    -> {hint}")
            try:
                example = example_of(Row(str(number), dict(zip(names, row))), names)
            except WrongText as error:
                raise DataError("not-text", f"row {number}: {error}") from None
            if example is None:
                raise DataError("no-text", f"row {number} has no text\n    -> leave the row out")
            examples.append(example)
        return examples


def plain(value: Any) -> Any:
    """Return numbers and arrays of numpy as Python's."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _load_pyfunc(path: str) -> Any:
    """Load a model as MLflow calls its flavour ``python_function``: rows in, the columns of ``regft predict`` out."""
    model = LoadedModel(path)
    return SimpleNamespace(predict=lambda rows, params=None: pd.DataFrame(model.lines(rows)))

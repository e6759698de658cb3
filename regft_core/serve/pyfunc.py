"""Exported models as MLflow's flavour ``python_function``: ``mlflow models serve`` answers as ``regft predict`` does.

The file ``MLmodel`` of an export names this module (``models/export_record.py``). Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from regft_core.serve.loaded import LoadedModel


class Answering:
    """The model as MLflow calls it."""

    def __init__(self, path: str) -> None:
        self._model = LoadedModel(path)

    def predict(self, rows: pd.DataFrame | Iterable[Any], params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a row for each text, with the columns of ``regft predict``.

        Args:
            rows: a data frame with the columns of the training file, or texts (pairs of texts).
            params: none are known; MLflow hands them on.

        Raises DataError for a row without a text, and for a column that is missing.
        """
        return pd.DataFrame(self._model.lines(rows))


def _load_pyfunc(path: str) -> Answering:
    """MLflow's entry: load the model in a folder. Raises ModelError."""
    return Answering(path)

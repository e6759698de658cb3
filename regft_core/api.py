"""regft from Python: fit a model to labelled rows, load one, or open a project, run it and read its results.

>>> fitted = fit(frame, text="review", label="verdict", minutes=10)    # or a file; see ``fit``
>>> fitted.leaderboard()                       # a data frame; a notebook shows the table of all methods
>>> fitted.method, fitted.expected, fitted.report
>>> fitted.predict(["a fine film", "a waste of time"])
>>> load_model(fitted.export("models/reviews")).predict_proba(["a fine film"])

>>> project = Project.open("path/to/project")          # the folder with params.yaml
>>> project.set("training.epochs", 5)          # in params.yaml, whose comments stay
>>> project.run("hype_n", "cue_pair")          # every size and seed of the grid; finished runs are reused
>>> results = project.results()                # a data frame; a notebook shows it as the leaderboard
>>> results[results["primary"] & (results["set"] == "dev")][["method", "mean", "low", "high", "vs_control"]]
>>> results.verdicts                           # a data frame, too: one row for each pair of methods on each set

It calls what the commands and the DVC stages call, on the same files, so the two may be mixed: ``dvc repro`` afterwards
takes the runs from the run store. Errors are those of ``regft_core.errors``.

The package is typed (``py.typed``). What ``__all__`` lists here, the hooks of ``hooks.base`` and the codes of errors
keep their names and meaning within a version; the changelog names every change of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_list_like

from regft_core.data.examples import WrongText, text_of
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem, RunFailed
from regft_core.fit.fitting import Wanted, fit_rows
from regft_core.fit.own_rows import Asked
from regft_core.grid.cell_keys import evaluated_cells, grid_rows, read_failures
from regft_core.grid.compute import compute_only
from regft_core.grid.repro import repro
from regft_core.lazy import Array
from regft_core.report import project_inputs, write_report
from regft_core.report.results import Results
from regft_core.schema.sources import FileFormat
from regft_core.serve.loaded import LoadedModel, Text, plain
from regft_core.settings.document import Document, edited, load_yaml
from regft_core.settings.preset import put
from regft_core.settings.read_project import open_project
from regft_core.settings.validate import validated

__all__ = ["Fitted", "LoadedModel", "Project", "Results", "fit", "load_model"]


class Project:
    """A project folder. Its files are read at every call, so edits of the YAMLs take effect."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).resolve()

    @classmethod
    def open(cls, path: Path | str = ".") -> Project:
        """Open the project in a folder, checked as a whole.

        Raises ConfigError with every mistake of every file.
        """
        project = cls(path)
        open_project(project.root)
        return project

    def run(self, method: str | None = None, task: str | None = None) -> None:
        """Train and evaluate every size and seed of a method on a task; of all where one is not named.

        Runs that are in the run store are not trained again; a killed run continues.

        Raises:
            ConfigError: the configuration is wrong, or a name is not listed in ``params.yaml``.
            DataError, ModelError, StoreError: what a stage needs cannot be read or written.
            RunFailed: a run ended with an error; the others are stored.
        """
        grid = open_project(self.root)
        methods = list(grid.methods) if method is None else [method]
        named = [name if task is None else f"{name}/{task}" for name in methods]
        if failures := compute_only(self.root, "evaluate", named):
            raise RunFailed("cells-failed", "\n".join(f"{cell}: {reason}" for cell, reason in failures.items()))

    def plan(self) -> pd.DataFrame:
        """Return the runs that ``run`` would train, a row for each method, task and size, as ``regft plan`` counts.

        Columns: ``seeds``, ``cached`` and ``to_train`` count runs; ``cost`` is of one run, in steps of plain
        fine-tuning.
        """
        rows = grid_rows(open_project(self.root).snapshot())
        return pd.DataFrame(
            {**asdict(row.cell), "seeds": row.seeds, "cached": row.cached, "to_train": row.to_train, "cost": row.cost}
            for row in rows
        )

    def set(self, key: str, value: Any) -> None:
        """Set a dotted key of ``params.yaml``; comments and order stay.

        Raises ConfigError with every mistake that this makes; then nothing is written.
        """
        file, path = self.root / "params.yaml", tuple(key.split("."))
        document = load_yaml(file, self.root)
        text = edited(file, lambda data: put(data, path, json.loads(_json(value)), document))
        open_project(self.root, params_text=text)
        write_text(file, text)

    def results(self) -> Results:
        """Scores and verdicts of every cell of the grid that was run, as ``regft run`` would report them now.

        A call is a look at the results: seeds that are added afterwards widen later intervals, as in the report.

        Raises DataError when a cell was run for other seeds than those of the grid, or is damaged.
        """
        project, failures = open_project(self.root), read_failures(self.root)
        inputs = project_inputs(project, evaluated_cells(project, failures), failures)
        return Results.of(write_report(inputs, None))


def load_model(path: Path | str, device: str = "auto", precision: str = "fp32") -> LoadedModel:
    """Load a model that ``regft export``, ``regft fit`` or ``fit`` wrote; nothing is downloaded. Raises ModelError.

    ``device`` is auto, cpu, mps, cuda or cuda:N, ``precision`` fp32, bf16 or int8.
    """
    return LoadedModel(path, device, precision)


@dataclass(frozen=True)
class Fitted:
    """A comparison and the model that it decided for.

    Attributes:
        method: the method that is taken.
        path: the exported model, in the project.
        folder: the project, under DVC: its params.yaml can be edited, ``regft run`` there runs what changed.
        decision: of that method: its expected score with an interval (``expected``, ``low``, ``high``), the probability
            that it is the best, and what taking it is expected to lose, all in the metric's unit.
        not_run: what the minutes were over for, methods by name; a call with more minutes goes on with it.
    """

    method: str
    path: Path
    folder: Path
    decision: dict[str, Any]
    not_run: tuple[str, ...] = ()

    @property
    def expected(self) -> float:
        """The score to expect of the model on new rows, in the metric's unit."""
        return float(self.decision["expected"])

    @property
    def project(self) -> Project:
        """The project of the comparison."""
        return Project(self.folder)

    @property
    def report(self) -> Path:
        """The page of the comparison."""
        return self.folder / "reports" / "report.html"

    @cached_property
    def model(self) -> LoadedModel:
        """The exported model, loaded."""
        return LoadedModel(self.path)

    def leaderboard(self) -> Results:
        """Return the scores of all methods as a data frame; a notebook shows it as the leaderboard."""
        return self.project.results()

    def export(self, path: Path | str) -> Path:
        """Copy the model to a new folder, which ``load_model`` and ``regft predict`` read; return the folder.

        Raises FileExistsError where something is there.
        """
        return Path(shutil.copytree(self.path, path))

    def predict(self, texts: Text | Iterable[Text] | pd.DataFrame) -> Array:
        """Return the answers of the model (``LoadedModel.predict``)."""
        return self.model.predict(texts)

    def predict_proba(self, texts: Text | Iterable[Text] | pd.DataFrame) -> Array:
        """Return the probabilities of the model (``LoadedModel.predict_proba``)."""
        return self.model.predict_proba(texts)


def fit(
    data: Path | str | pd.DataFrame,
    *,
    text: str,
    label: str,
    pair: str | None = None,
    group: str | None = None,
    kind: str | None = None,
    ood: Path | str | pd.DataFrame | Sequence[Path | str | pd.DataFrame] = (),
    unlabelled: Path | str | pd.DataFrame | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    sheet: str | None = None,
    decimal: str | None = None,
    minutes: float = 30.0,
    model: str | None = None,
    seed: int = 0,
    project: Path | str | None = None,
    quiet: bool = False,
) -> Fitted:
    """Compare methods on labelled rows, decide, export a model of all rows. As ``regft fit``, with its bits.

    Args:
        data: a file as ``regft fit`` reads it, or a data frame.
        text, label, pair, group: columns.
        kind: kind of label, where the rows leave it open: classification, multi_label, ordinal, regression.
        ood: files or data frames of the same columns with other texts. Of methods within the tolerance one that is
            better there by more than it is taken.
        unlabelled: a file or data frame with the columns of the texts, for methods that read texts without labels.
        encoding, delimiter, sheet, decimal: how the files are written, as the options of ``regft fit``.
        minutes: time for everything on this machine, by its own estimate. Nothing runs longer than 1.2 times as long,
            planning aside, if this is called in the main thread; in another one nothing is stopped.
        model: encoder, an alias or a directory; the strongest on this disk when absent.
        seed: another number splits into other folds.
        project: folder to make, or to go on with after an interruption; a temporary one when absent. A data frame is
            kept as CSV in ``.regft-fit`` beside it.
        quiet: print nothing; what would be printed is in a log in ``.regft-fit``.

    Raises:
        ConfigError: what is wrong with rows, columns, options or the folder, all in one; nothing was written.
        RunFailed: runs ended with an error; the report names them.
    """
    written = {"encoding": encoding, "delimiter": delimiter, "sheet": sheet, "decimal": decimal}
    how = validated(FileFormat, Document(written, {}, "regft.fit"))
    folder = Path(project or Path(tempfile.mkdtemp(prefix="regft-")) / "project").absolute()
    beside = folder.parent / ".regft-fit"  # a file of the user's may have the project's name
    beside.mkdir(parents=True, exist_ok=True)

    def as_file(column: pd.Series[Any]) -> pd.Series[Any]:
        """Lists of a column as a file has them: in JSON, and those of a text joined as ``text_of`` joins them."""
        if not any(map(is_list_like, column)):
            return column
        name, is_text = str(column.name), column.name in (text, pair)
        written = (lambda cell: text_of(plain(cell), name)) if is_text else _json
        return column.map(lambda cell: written(cell) if is_list_like(cell) else cell)

    def file_of(rows: Path | str | pd.DataFrame, name: str) -> Path:
        if not isinstance(rows, pd.DataFrame):
            return Path(rows).absolute()
        file = beside / f"{name}.csv"
        try:
            # Without "\r" in the line end a lone one within a text would end a row.
            told = {"sep": delimiter or ",", "encoding": encoding, "decimal": decimal or ".", "lineterminator": "\r\n"}
            rows.apply(as_file).to_csv(file, index=False, **told)
        except WrongText as error:
            hint = "give a text in each row, or a list of texts (keywords)"
            raise ConfigError([Problem("not-text", "regft.fit", 0, "data", str(error), hint)]) from error
        except UnicodeEncodeError as error:
            message = f"a data frame has {error.object[error.start]!r}, which {error.encoding} cannot write"
            hint = "leave encoding out: a data frame is then written as UTF-8" if encoding else "correct the cell"
            raise ConfigError([Problem("not-in-encoding", "regft.fit", 0, "encoding", message, hint)]) from error
        return file

    several = [ood] if isinstance(ood, str | Path | pd.DataFrame) else ood
    stem = folder.name.replace(".", "-")[:50]  # a set's name ends at a dot, and at 64 letters
    others = tuple(file_of(rows, f"{stem}-ood-{number}") for number, rows in enumerate(several, 1))
    texts = None if unlabelled is None else file_of(unlabelled, f"{stem}-unlabelled")
    asked = Asked(file_of(data, folder.name), text, label, pair, group, kind, how, others, texts)
    wanted = Wanted(Path.cwd(), asked, str(folder), minutes, model, seed)
    with _printed_to(beside / f"{folder.name}.log") if quiet else contextlib.nullcontext():
        taken = fit_rows(wanted, _run)
    return Fitted(taken.method, taken.path, folder, taken.decision, taken.not_run)


def _json(cell: Any) -> str:
    """Return a list, tuple, set, array or object as JSON; a set in an order that is always the same."""
    value = sorted(cell, key=str) if isinstance(cell, set | frozenset) else plain(cell)
    return json.dumps(value, ensure_ascii=False, default=lambda one: plain(one) if hasattr(one, "tolist") else str(one))


def _run(folder: Path) -> None:
    if code := repro(folder):
        why = f"a stage ended with exit code {code} and printed why; runs that failed are in reports/report.html there"
        raise RunFailed("cells-failed", f"{folder}: {why}")


@contextlib.contextmanager
def _printed_to(file: Path) -> Iterator[None]:
    """Send what this process and those that it starts print to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = os.dup(1), os.dup(2)
    with file.open("w", encoding="utf-8") as target:
        try:
            for number in (1, 2):
                os.dup2(target.fileno(), number)
            with contextlib.redirect_stdout(target), contextlib.redirect_stderr(target):
                yield
        finally:
            for number, kept in zip((1, 2), before, strict=True):
                os.dup2(kept, number)
                os.close(kept)

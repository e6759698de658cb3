"""Training curves and what methods logged: CSV files with a row for each step of each seed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from regft_core.errors import DataError

CURVE_COLUMNS = ("seed", "phase", "step", "epoch", "loss", "learning_rate", "gradient_norm")
LOGGED_COLUMNS = ("seed", "phase", "step", "name", "value")


class CurvePoint(NamedTuple):
    """One optimiser step of one run."""

    seed: int
    phase: str
    step: int
    loss: float | None
    learning_rate: float | None
    gradient_norm: float | None


class Logged(NamedTuple):
    """One number as a method logged it."""

    seed: int
    phase: str
    step: int
    name: str
    value: float


class Log:
    """One such file, read when somebody asks for it; its rows become numbers when somebody asks for those.

    Args:
        stage: the stage that writes it.

    What reads raises DataError where the file is not what it should be.
    """

    def __init__(self, path: Path, stage: str) -> None:
        self.path, self._stage = path, stage

    @cached_property
    def rows(self) -> dict[str, list[str]]:
        """Seed -> its lines; empty where there is no file. The fields are names and numbers, so none is quoted."""
        found: dict[str, list[str]] = {}
        if self.path.is_file():
            try:
                lines = self.path.read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError) as error:
                raise self._wrong(error) from error
            for line in lines[1:]:
                found.setdefault(line.partition(",")[0], []).append(line)
        return found

    def of(self, seed: int) -> list[str]:
        """The lines of one seed."""
        return self.rows.get(str(seed), [])

    def curve(self, seeds: Iterable[int]) -> list[CurvePoint]:
        """The rows of these seeds, in a file with ``CURVE_COLUMNS``."""
        found = []
        try:
            for seed, phase, step, _, *values in self._fields(seeds):
                loss, rate, norm = (float(value) if value else None for value in values)
                found.append(CurvePoint(int(seed), phase, int(float(step)), loss, rate, norm))
        except (ValueError, csv.Error) as error:
            raise self._wrong(error) from error
        return found

    def logged(self, seeds: Iterable[int]) -> list[Logged]:
        """The rows of these seeds, in a file with ``LOGGED_COLUMNS``."""
        try:
            rows = self._fields(seeds)
            return [
                Logged(int(seed), phase, int(float(step)), name, float(value))
                for seed, phase, step, name, value in rows
            ]
        except (ValueError, csv.Error) as error:
            raise self._wrong(error) from error

    def _fields(self, seeds: Iterable[int]) -> Iterator[Sequence[str]]:
        return csv.reader(line for seed in seeds for line in self.of(seed))

    def _wrong(self, error: Exception) -> DataError:
        text = f"{self.path}: not a log of steps ({error})\n    -> run `dvc repro` (stage {self._stage})"
        return DataError("damaged-output", text)

"""The result of an evaluation of one run: numbers, tables and remarks, as they are stored and shown."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from regft_core.schema import StrictModel

#: In the place of a set's name: what is found out about the run as a whole.
RUN = "run"
#: Why an evaluation that looks into rows has nothing to show.
BY_WINDOWS = "an example's tokens are spread over windows, which share some; set model.windows: 1 to look at tokens"

_FINITE = ConfigDict(allow_inf_nan=False)


def _plain(value: Any) -> Any:
    """The Python number of a numpy scalar; anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


Number = Annotated[float, BeforeValidator(_plain)]
Cell = Annotated[str | int | float | bool | None, BeforeValidator(_plain)]
#: An end of a range, None for an infinite one.
Limit = Annotated[float | None, BeforeValidator(lambda value: None if value in (-math.inf, math.inf) else value)]
#: MLflow's metric names allow little more, and YAML and CSV readers less.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class SomeRows(StrictModel):
    """Options of an evaluation that looks at some rows (``run.parts``)."""

    sets: Literal["dev", "all"] = Field("dev", description="the validation set, or all sets")
    rows: int = Field(200, ge=1, description="examples of a set, the same for all runs; all when it has fewer")


class Unfit(Exception):
    """An evaluation has nothing to say about this run; the text says why, and becomes a remark."""


@dataclass(frozen=True)
class Plot:
    """How the report draws a table: column ``y`` over column ``x``, a line per arm in a panel per set.

    ``group``: columns whose values name further panels. ``baseline``: a column drawn once per panel, dotted.
    ``points``: no lines but points, which ``group`` names, in a panel per arm; their rows are not listed beside it.
    """

    x: str
    y: str
    group: tuple[str, ...] = ()
    baseline: str | None = None
    points: bool = False


@dataclass(frozen=True, config=_FINITE)
class Table:
    """A table; cells are text, finite numbers or None.

    Attributes:
        keys: how many leading columns name a row (a class, a bin). The report then shows and draws, for rows of the
            same name, the mean over seeds of every other column. With 0 it takes the first seed's table.
        weight: a column, such as the number of examples, by which that mean is weighted; it is averaged itself.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    keys: int = 0
    weight: str | None = None
    plot: Plot | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Table:
        plot, measured = self.plot, self.columns[self.keys :]
        wanted = [(self.weight, measured)]
        if plot is not None:
            wanted += [(column, measured) for column in (plot.y, plot.baseline)]
            wanted += [(column, self.columns) for column in (plot.x, *plot.group)]
        for column, allowed in wanted:
            if column is not None and column not in allowed:
                raise ValueError(f"'{column}' is not one of the columns {list(allowed)}")
        if not self.keys and (self.weight is not None or (plot is not None and not plot.points)):
            raise ValueError("weights and lines are of means over seeds, which need keys")
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row has not {len(self.columns)} cells, one for each column")
        if self.keys and len({row[: self.keys] for row in self.rows}) < len(self.rows):
            raise ValueError(f"two rows share their name (the first {self.keys} columns)")
        return self


@dataclass(frozen=True, config=_FINITE)
class Findings:
    """The result of one evaluation of one run.

    Attributes:
        scalars: set (or ``RUN``) -> name -> finite number. A number that is not defined is left out.
        ranges: name of a scalar -> smallest and largest value, None where there is none; intervals are cut there.
        remarks: what a reader must know about this run.
        over_sizes: names of scalars that the report draws over the training sizes.
    """

    scalars: Mapping[str, Mapping[Name, Number]] = field(default_factory=dict)
    tables: Mapping[str, Mapping[Name, Table]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[Limit, Limit]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    over_sizes: tuple[str, ...] = ()

    def as_json(self, sets: Collection[str]) -> dict[str, Any]:
        """Plain values for ``result.json``; raises ValueError for a set that is none of ``sets``."""
        if unknown := {*self.scalars, *self.tables} - {*sets, RUN}:
            raise ValueError(f"found of {sorted(unknown)}, which is no set; there are {sorted({*sets, RUN})}")
        return TypeAdapter(Findings).dump_python(self, mode="json")

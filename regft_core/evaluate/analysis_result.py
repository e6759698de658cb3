"""The result of an evaluation of one run: numbers, tables and remarks, as plain values that become JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: In the place of a set's name: what is found out about the run as a whole.
RUN = "run"
#: MLflow's metric names allow little more, and YAML and CSV readers less.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

Cell = str | int | float | bool | None


#: Why an evaluation that looks into rows has nothing to show.
BY_WINDOWS = "an example's tokens are spread over windows, which share some; set model.windows: 1 to look at tokens"


class Unfit(Exception):
    """An evaluation has nothing to say about this run; the text says why, and becomes a remark."""


@dataclass(frozen=True)
class Plot:
    """How the report draws a table: column ``y`` over column ``x``.

    Attributes:
        diagonal: both are between 0 and 1; the line on which they are equal is drawn.
        panels: one panel per arm with a line per set, or (``sets``) one per set with a line per arm.
        group: a column that names lines: one line (``panels: arms``) or one panel (``sets``) for each of its values.
        baseline: a column drawn once per panel, dotted, for comparison; with ``panels: sets`` only.
        points: points instead of lines.
        paired: also drawn as the difference to the reference, paired by seed, with a line per arm.
        one_scale: panels of arms share the axis of ``y``.
        violins: how ``y`` is spread over the rows of one ``x``, side by side for the arms; with ``panels: sets`` only,
            of a table without keys.
        colour: a column whose values colour points, beside the markers of ``group``.
    """

    x: str
    y: str
    diagonal: bool = False
    panels: Literal["arms", "sets"] = "arms"
    group: str | None = None
    baseline: str | None = None
    points: bool = False
    paired: bool = False
    one_scale: bool = False
    violins: bool = False
    colour: str | None = None


@dataclass(frozen=True)
class Table:
    """A table; cells are text, numbers or None.

    Attributes:
        keys: how many leading columns name a row (a class, a bin). The report then shows, for rows of
            the same name, the mean over seeds of every other column. With 0 it shows the first seed's table.
        weight: a column, such as the number of examples, by which that mean is weighted; it is averaged itself.
        plot: how it is drawn; with keys the mean of the seeds, without the first seed's table.
        listed: False when the report draws the table and does not list its rows (points by the hundred); they are
            in ``work/evaluate/<method>/<task>/<size>/evaluations/`` and in MLflow.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    keys: int = 0
    weight: str | None = None
    plot: Plot | None = None
    listed: bool = True


@dataclass(frozen=True)
class Findings:
    """The result of one evaluation of one run.

    Attributes:
        scalars: set (or ``RUN``) -> name -> number. A number that is not defined is left out.
        tables: set (or ``RUN``) -> name -> table.
        ranges: name of a scalar -> smallest and largest value, None where there is none; the report cuts
            intervals there.
        remarks: what a reader must know about this run, such as what could not be done.
        over_sizes: names of scalars that the report draws over the training sizes, where there are several.
    """

    scalars: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Table]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    over_sizes: tuple[str, ...] = ()

    def as_json(self, sets: Collection[str]) -> dict[str, Any]:
        """Plain values for ``result.json``.

        Args:
            sets: names of the sets that there are.

        Raises:
            ValueError: a set, name or value that no file or table can take, with the place.
        """
        places = {*sets, RUN}
        for what, found in (("scalars", self.scalars), ("tables", self.tables)):
            for place, named in found.items():
                if place not in places:
                    raise ValueError(f"{what} of '{place}', which is no set; there are {', '.join(sorted(places))}")
                for name in named:
                    if not _NAME.fullmatch(name):
                        raise ValueError(f"{what} of '{place}': the name {name!r} is not of letters, digits, _ . and -")
        return {
            "scalars": {
                place: {name: _number(value, f"{place}.{name}") for name, value in named.items()}
                for place, named in self.scalars.items()
            },
            "tables": {
                place: {name: _table(table, f"{place}.{name}") for name, table in named.items()}
                for place, named in self.tables.items()
            },
            "ranges": {name: list(bounds) for name, bounds in self.ranges.items()},
            "remarks": list(self.remarks),
            "over_sizes": list(self.over_sizes),
        }


def bounds(limits: tuple[float, float]) -> tuple[float | None, float | None]:
    """A range with None where it is infinite, as ``ranges`` wants it."""
    low, high = (limit if math.isfinite(limit) else None for limit in limits)
    return low, high


def _number(value: Any, where: str) -> float:
    plain = _plain(value)
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        raise ValueError(f"{where} is {value!r}; a scalar is a finite number, and one that is not defined is left out")
    return float(plain)


def _table(table: Table, where: str) -> dict[str, Any]:
    width = len(table.columns)
    if not 0 <= table.keys < width:
        raise ValueError(f"{where}: keys is {table.keys}, of {width} columns")
    plot = None if table.plot is None else asdict(table.plot)
    measured = table.columns[table.keys :]
    wanted = [(table.weight, measured)]
    if table.plot is not None:
        wanted += [(table.plot.x, table.columns), (table.plot.y, measured), (table.plot.group, table.columns)]
        wanted += [(table.plot.baseline, measured), (table.plot.colour, table.columns)]
    for column, allowed in wanted:
        if column is not None and column not in allowed:
            raise ValueError(f"{where}: '{column}' is not one of the columns {list(allowed)}")
    if table.weight is not None and not table.keys:
        raise ValueError(f"{where}: a weight is of the mean over seeds, which needs keys")
    if table.plot is not None and table.plot.panels == "sets" and bool(table.keys) == table.plot.violins:
        raise ValueError(
            f"{where}: violins show rows as they are, without keys"
            if table.plot.violins
            else f"{where}: lines of all arms in one panel are means over seeds, which need keys"
        )
    rows = [[_cell(cell, where) for cell in row] for row in table.rows]
    for row in rows:
        if len(row) != width:
            raise ValueError(f"{where}: a row has {len(row)} cells, but there are {width} columns")
    named = [tuple(row[: table.keys]) for row in rows]
    if table.keys and len(set(named)) != len(named):
        raise ValueError(f"{where}: two rows share their name (the first {table.keys} columns)")
    return {
        "columns": [str(column) for column in table.columns],
        "rows": rows,
        "keys": table.keys,
        "weight": table.weight,
        "plot": plot,
        "listed": table.listed,
    }


def _cell(value: Any, where: str) -> Cell:
    plain = _plain(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ValueError(f"{where} holds {value!r}; a cell that is not defined is None")
    if plain is None or isinstance(plain, str | int | float | bool):
        return plain
    raise ValueError(f"{where} holds {value!r}; cells are text, numbers or None")


def _plain(value: Any) -> Any:
    """The Python number of a numpy scalar; anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value

"""Numbers printed in papers: ``published/<paper>_<table>.yaml``, as facts with their table, row and unit.

A file is one table, or the numbers that a paper prints in its prose. A row that the paper took from elsewhere is never
compared with ours. ``tests/papers`` recomputes the shipped tables, and checks that names in them agree. A claim is
about each encoder and each training size whose rows have all of its methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regft_core.errors import ConfigError, Problem
from regft_core.schema import Inconsistency, Items, Name, NameList, OneOrMoreNames, Size, SomeItems, StrictModel
from regft_core.schema.params import Params, Part, PartName, PartNames
from regft_core.settings.document import Document, KeyPath, load_yaml
from regft_core.settings.validate import validated
from regft_core.settings.yaml_paths import PUBLISHED, missing, read

#: In the columns of a claim: every column of a task that both rows print.
ALL = "all"


class Column(StrictModel):
    """Meaning of the numbers of one column: exactly one of metric, mean_of and unit."""

    metric: str | None = Field(None, description="the column is a task or task/set, in points (times 100)")
    mean_of: Annotated[list[Part], Field(min_length=1)] | None = Field(
        None, description="columns that this one is the mean of; a list inside counts as one part"
    )
    unit: str | None = Field(None, min_length=1, description="of a column that is no task, set or mean here")


class PrintedEncoder(StrictModel):
    """The checkpoint behind an encoder's name in the paper."""

    model: str | None = Field(min_length=1, description="hub id; null where nobody says it and no row has an arm")
    instead: dict[PartName, str] = Field(
        {}, description="column -> hub id, where its runs start from another checkpoint"
    )
    source: str = Field(min_length=1, description="who says so: the paper, its code, nobody (then it is assumed)")


class PublishedRow(StrictModel):
    """One row of a table: one method with one encoder at one training size."""

    method: str = Field(min_length=1, description="as the paper calls it")
    arm: Name | None = Field(None, description="the same method here (pipelines/methods); none where there is none")
    encoder: str = Field(min_length=1, description="as the table's ``encoders`` call it")
    size: Size = "full"
    setting: dict[Name, int | float | str] = Field({}, description="what else sets rows of one method apart")
    scores: dict[PartName, float] = Field({}, description="column -> what is printed")
    deviations: dict[PartName, Annotated[float, Field(ge=0)]] = Field(
        {}, description="over seeds; that of a mean is what the paper prints, the mean of its parts' in weight mixup"
    )
    gain_over: str | None = Field(None, min_length=1, description="method of the row that gains are over")
    gains: dict[PartName, float] = Field({}, description="printed differences to that row")
    recomputed: dict[PartName, float] = Field(
        {}, description="means that follow where the printed one does not: misprints"
    )
    copied_from: str | None = Field(None, min_length=1, description="whose numbers these are where not the paper's own")
    note: str = ""


class Numbers(StrictModel):
    """Numbers of an evaluation that a claim is about, on the development set or of the run as a whole."""

    evaluation: Name = Field(description="name of the evaluation")
    names: SomeItems[str] = Field(description="names of its numbers")
    than: Items[str] = Field(
        (), description="numbers of the other method that these are compared with, in this order; absent: the same ones"
    )
    than_size: Size | None = Field(None, description="training size of the other method where it is another one")
    lower: bool = Field(False, description="the claim is that they are lower")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        if self.than and len(self.than) != len(self.names):
            yield ("than",), f"than names {len(self.than)} numbers beside {len(self.names)} in names"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.names, self.than or self.names, strict=True))


class Claim(StrictModel):
    """One claim; it holds when it holds for every opponent in every column."""

    says: str = Field(min_length=1, description="the claim, in own words")
    where: str = Field(min_length=1, description="section, caption or table of the paper that makes it")
    arm: Name = Field(description="the method that gains, as it is called here")
    over: OneOrMoreNames = Field(min_length=1, description="what it gains over")
    columns: PartNames = Field(
        (), description="columns of the table; all: every column of a task; none of a claim on cost"
    )
    encoders: Items[str] = Field((), description="all of the table when absent")
    sizes: Items[Size] = Field((), description="all of the table when absent")
    measure: Literal["mean", "passes", "memory"] = Field(
        "mean", description="passes, memory: fewer passes of training, a smaller peak on a GPU, on every task that ran"
    )
    numbers: Numbers | None = Field(None, description="the claim is about numbers of an evaluation, not about scores")
    at_most: float = Field(1.0, gt=0, description="passes or memory may be so many times those of the other method")

    @property
    def of_cost(self) -> bool:
        return self.measure in ("passes", "memory")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        if self.of_cost == bool(self.columns):
            yield ("columns",), "a claim on cost names no columns" if self.of_cost else "a claim names columns"
        if self.at_most != 1 and not self.of_cost:
            yield ("at_most",), f"at_most is for measure: passes or memory, and this is measure: {self.measure}"
        if self.numbers is not None and self.measure != "mean":
            yield ("numbers",), f"numbers are compared by their mean, and this is measure: {self.measure}"

    def settings(self, config: PublishedConfig) -> list[tuple[str, str]]:
        """(encoder, size) of the table's rows that the claim is about; of a table without rows its encoders."""
        sizes, found = list(map(str, self.sizes)), []
        every = [(row.encoder, str(row.size)) for row in config.rows] or product(config.encoders, sizes or ["full"])
        for encoder, size in dict.fromkeys(every):
            rows = [row_of(config, name, encoder, size) for name in (self.arm, *self.over)]
            meant = encoder in (self.encoders or [encoder]) and size in (sizes or [size])
            if meant and (all(rows) or not config.rows or self.of_cost):
                found.append((encoder, size))
        return found


class PublishedConfig(StrictModel):
    paper: str = Field(min_length=1)
    table: str = Field(min_length=1, description="as the paper numbers it; ``prose`` for numbers of its text")
    what: str = Field(min_length=1, description="what it shows, in own words")
    seeds: Annotated[int, Field(ge=1)] | None = Field(None, description="null: the paper does not say")
    statistic: str = Field(min_length=1, description="what a number is: mean over seeds, selected how")
    transposed: bool = Field(False, description="the paper prints our columns as its rows")
    columns: dict[PartName, Column] = Field(
        description="in the paper's order; parts of means may have no number of their own"
    )
    encoders: dict[str, PrintedEncoder] = Field({}, description="name in the paper -> checkpoint")
    derived: NameList = Field((), description="arms that a preset of this table derives (its method_settings)")
    rows: Items[PublishedRow]
    missing: str = Field("", description="what the table prints and is not here, and why")
    misprints: Items[str] = Field((), description="known, in words")
    claims: Items[Claim] = Field((), description="what the paper concludes from the table")

    @property
    def metrics(self) -> dict[str, str]:
        """Columns that are a task or task/set -> their metric."""
        return {key: column.metric for key, column in self.columns.items() if column.metric is not None}

    def model(self, row: PublishedRow, column: str | None = None) -> str | None:
        """Hub id of a row's encoder, or of what ``column`` starts from, as far as anybody says it."""
        encoder = self.encoders[row.encoder]
        return encoder.instead.get(column or "", encoder.model)


def row_of(config: PublishedConfig, arm: str, encoder: str, size: str) -> PublishedRow | None:
    """The row of a method, the paper's own before a copied one; None without one."""
    rows = [row for row in config.rows if (row.arm, row.encoder, str(row.size)) == (arm, encoder, size)]
    return next((row for row in rows if row.copied_from is None), rows[0] if rows else None)


def read_published(root: Path, name: str) -> PublishedConfig:
    """Read ``published/<name>.yaml``. Raises ConfigError: the file is missing or wrong."""
    # Of a table that is not there the second one says what is.
    document = read(root, PUBLISHED, name) or load_yaml(root / PUBLISHED / f"{name}.yaml", root)
    return validated(PublishedConfig, document)


def check_published(root: Path, params: Params, document: Document) -> Iterator[Problem]:
    """Yield problems of ``report.published``: tables that are not there, or wrong themselves."""
    given = document.data["report"].get("published")
    for i, name in enumerate(params.report.published):
        at: KeyPath = ("report", "published", i) if isinstance(given, list) else ("report", "published")
        try:
            if (table := read(root, PUBLISHED, name)) is None:
                yield missing(root, PUBLISHED, name, document, at)
            else:
                validated(PublishedConfig, table)
        except ConfigError as error:
            yield from error.problems

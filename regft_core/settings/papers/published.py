"""Numbers printed in papers: ``published/<paper>_<table>.yaml``, as facts with their table, row and unit.

A file is one table, or the numbers that a paper prints in its prose. ``columns`` stand in the paper's order. A column
is a task or one of its other sets (``metric``), a mean of columns (``mean_of``, written as ``report.averages``), or
anything else (``unit``: seconds, gigabytes, a set that is none here). ``encoders`` says which checkpoint each encoder
is, and who says so. A row is one method with one encoder at one training size and ``setting``. Its ``scores``,
``deviations`` and ``gains`` have the names of columns; ``gain_over`` names the row that the printed gains are over. A
row that the paper took from elsewhere has ``copied_from`` and is never compared with ours. Where a printed average
does not follow from the numbers beside it, ``recomputed`` has what follows and ``misprints`` says it in words
(``tests/papers`` recomputes the shipped tables). ``missing`` says what the table prints and this file lacks.

Nothing here changes a run; ``report.published`` names the files to print beside ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from regft_core.catalogue import METRICS
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema import ConsistentModel, Inconsistency, Name, NameList, Size, StrictModel
from regft_core.schema.params import Params
from regft_core.schema.report import Part
from regft_core.settings.document import Document, KeyPath, load_yaml
from regft_core.settings.files import PUBLISHED, names, read
from regft_core.settings.papers.claims import Claim
from regft_core.settings.validate import validate

#: ``task`` for its development set, ``task/set`` for another of its sets; a name of any other column.
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)?$")]


def leaves(parts: Iterable[Part]) -> list[str]:
    """Columns in a mean, those of its nested lists too."""
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


class Column(ConsistentModel):
    """What the numbers of one column are: exactly one of metric, mean_of and unit."""

    metric: str | None = Field(None, description="the column is a task or task/set, in points (times 100)")
    mean_of: Annotated[list[Part], Field(min_length=1)] | None = Field(
        None, description="columns that this one is the mean of; a list inside counts as one part"
    )
    unit: str | None = Field(None, min_length=1, description="of a column that is no task, set or mean here")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Unknown metrics; none or several of the three kinds."""
        if sum(one is not None for one in (self.metric, self.mean_of, self.unit)) != 1:
            yield (), "a column has exactly one of metric, mean_of and unit"
        if self.metric is not None and self.metric not in METRICS.names():
            yield ("metric",), f"unknown metric '{self.metric}'; {suggestion(self.metric, METRICS.names())}"


class Encoder(StrictModel):
    """The checkpoint behind an encoder's name in the paper."""

    model: str | None = Field(min_length=1, description="hub id; null where nobody says it and no row has an arm")
    instead: dict[Key, str] = Field({}, description="column -> hub id, where its runs start from another checkpoint")
    source: str = Field(min_length=1, description="who says so: the paper, its code, nobody (then it is assumed)")


class PublishedRow(ConsistentModel):
    """One row of a table: one method with one encoder at one training size."""

    method: str = Field(min_length=1, description="as the paper calls it")
    arm: Name | None = Field(None, description="the same method here (pipelines/methods); none where there is none")
    encoder: str = Field(min_length=1, description="as the table's ``encoders`` call it")
    size: Size = "full"
    setting: dict[Name, int | float | str] = Field({}, description="what else sets rows of one method apart")
    scores: dict[Key, float] = Field({}, description="column -> what is printed")
    deviations: dict[Key, Annotated[float, Field(ge=0)]] = Field(
        {}, description="over seeds; that of a mean is what the paper prints, the mean of its parts' in weight mixup"
    )
    gain_over: str | None = Field(None, min_length=1, description="method of the row that gains are over")
    gains: dict[Key, float] = Field({}, description="printed differences to that row")
    recomputed: dict[Key, float] = Field({}, description="means that follow where the printed one does not: misprints")
    copied_from: str | None = Field(None, min_length=1, description="whose numbers these are where not the paper's own")
    note: str = ""

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Deviations without scores, gains over nothing, and rows that say nothing."""
        for key in self.deviations:
            if key not in self.scores:
                yield ("deviations", key), f"a deviation of '{key}', which has no score"
        if not self.scores:
            yield ("scores",), "a row without scores says nothing"
        if bool(self.gains) != (self.gain_over is not None):
            yield ("gains",), "gains and gain_over belong together"

    @property
    def identity(self) -> tuple[object, ...]:
        """What no two rows of a table share."""
        return (self.method, self.encoder, self.size, tuple(sorted(self.setting.items())))


class PublishedConfig(ConsistentModel):
    """One table of one paper."""

    paper: str = Field(min_length=1)
    table: str = Field(min_length=1, description="as the paper numbers it; ``prose`` for numbers of its text")
    what: str = Field(min_length=1, description="what it shows, in own words")
    seeds: Annotated[int, Field(ge=1)] | None = Field(None, description="null: the paper does not say")
    statistic: str = Field(min_length=1, description="what a number is: mean over seeds, selected how")
    transposed: bool = Field(False, description="the paper prints our columns as its rows")
    columns: dict[Key, Column] = Field(
        description="in the paper's order; parts of means may have no number of their own"
    )
    encoders: dict[str, Encoder] = Field({}, description="name in the paper -> checkpoint")
    derived: NameList = Field((), description="arms that a preset of this table derives (its method_settings)")
    rows: Annotated[tuple[PublishedRow, ...], Field(strict=False)]
    missing: str = Field("", description="what the table prints and is not here, and why")
    misprints: Annotated[tuple[str, ...], Field(strict=False)] = Field((), description="known, in words")
    claims: Annotated[tuple[Claim, ...], Field(strict=False)] = Field((), description="what the paper says of it")

    @property
    def metrics(self) -> dict[str, str]:
        """Columns that are a task or task/set -> their metric."""
        return {key: column.metric for key, column in self.columns.items() if column.metric is not None}

    def model(self, row: PublishedRow, column: str | None = None) -> str | None:
        """Hub id of a row's encoder, or of what ``column`` starts from, as far as anybody says it."""
        encoder = self.encoders[row.encoder]
        return encoder.instead.get(column or "", encoder.model)

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Columns, encoders and rows that are named and not there; claims of what the table does not have."""
        if not self.rows and not self.missing:
            yield ("rows",), "no rows, and 'missing' does not say why"
        for key, column in self.columns.items():
            for part in leaves(column.mean_of or ()):
                if part not in self.columns:
                    yield ("columns", key), f"'{part}' is not a column; {suggestion(part, self.columns, 'columns')}"
        for i, row in enumerate(self.rows):
            yield from self._row(row, ("rows", i))
        for i, claim in enumerate(self.claims):
            for field, message in claim.problems(self):
                yield ("claims", i, *([field] if field else [])), message

    def _row(self, row: PublishedRow, at: tuple[str | int, ...]) -> Iterator[Inconsistency]:
        if row.encoder not in self.encoders:
            hint = suggestion(row.encoder, self.encoders, "encoders of the table")
            yield (*at, "encoder"), f"unknown encoder '{row.encoder}'; {hint}"
        elif row.arm is not None and self.model(row) is None:
            yield (*at, "arm"), "a row with 'arm' needs an encoder whose checkpoint is known"
        for field in ("scores", "gains", "recomputed"):
            for key in getattr(row, field):
                if key not in self.columns:
                    yield (*at, field, key), f"'{key}' is not a column; {suggestion(key, self.columns, 'columns')}"
        base = [one for one in self.rows if (one.method, one.encoder, one.size) == (row.gain_over, *row.identity[1:3])]
        if row.gain_over is not None and len(base) != 1:
            yield (*at, "gain_over"), f"{len(base)} rows are '{row.gain_over}' with this encoder and size, not one"


class Published(StrictModel):
    """A table with the name of its file."""

    name: str
    config: PublishedConfig


def read_published(root: Path, name: str) -> Published:
    """Read ``published/<name>.yaml``.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    root = Path(root)
    # Of a table that is not there the second one says what is.
    document = read(root, PUBLISHED, name) or load_yaml(root / PUBLISHED / f"{name}.yaml", root)
    config, problems = validate(PublishedConfig, document)
    if config is None:
        raise ConfigError(problems)
    return Published(name=name, config=config)


def published_names(root: Path) -> list[str]:
    """The tables that are there."""
    return names(Path(root), PUBLISHED)


def check_published(root: Path, params: Params, document: Document) -> list[Problem]:
    """Problems of ``report.published``: tables that are not there, or wrong themselves."""
    there, given = published_names(root), document.data["report"].get("published")
    found = []
    for i, name in enumerate(params.report.published):
        at: KeyPath = ("report", "published", i) if isinstance(given, list) else ("report", "published")
        if name not in there:
            message, hint = f"there is no {PUBLISHED}/{name}.yaml", suggestion(name, there, "tables there")
            found.append(document.problem("unknown-table", at, message, hint))
            continue
        try:
            read_published(root, name)
        except ConfigError as error:
            found += error.problems
    return found

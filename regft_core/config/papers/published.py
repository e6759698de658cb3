"""Numbers printed in papers: ``published/<paper>_<table>.yaml``, as facts with their table, row and unit.

They are checked like any configuration: averages must follow from the numbers beside them, and where the paper's
does not, the row says so (``recomputed``). Nothing here changes a run; ``report.published`` names the files to print
beside ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from regft_core.catalogue import METRICS
from regft_core.config.files import METHODS, PUBLISHED, TASKS, names_in
from regft_core.config.messages.explain import validate
from regft_core.config.schema import ConsistentModel, Inconsistency, Name, Size, StrictModel
from regft_core.config.schema.params import Params
from regft_core.config.yaml.document import Document, KeyPath, load_yaml
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion

#: ``task`` for its development set, ``task/set`` for another of its sets.
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)?$")]
#: In points (times 100), as papers print them.
Points = Annotated[float, Field(ge=-100, le=100)]


class PublishedRow(ConsistentModel):
    """One row of a table: one arm with one encoder at one training size."""

    method: str = Field(min_length=1, description="the arm, as the paper calls it")
    arm: Name | None = Field(None, description="the same arm here (pipelines/methods); none where there is none")
    model: str = Field(min_length=1, description="hub id of the encoder, as far as the paper or its code tells")
    size: Size = "full"
    scores: dict[Key, Points] = Field({}, description="column -> what is printed")
    deviations: dict[Key, Annotated[float, Field(ge=0)]] = Field({}, description="over seeds")
    average: Points | None = None
    average_deviation: Annotated[float, Field(ge=0)] | None = None
    recomputed: Points | None = Field(
        None, description="mean of scores where the printed average is not it: a misprint"
    )
    note: str = ""

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Deviations without scores; an average that does not follow from the scores and does not say so."""
        if self.known("scores", "deviations"):
            for key in self.deviations:
                if key not in self.scores:
                    yield ("deviations", key), f"a deviation of '{key}', which has no score"
        if not self.known("scores", "average", "recomputed"):
            return
        if not self.scores and self.average is None:
            yield ("scores",), "a row without scores and without an average says nothing"
        if self.average is None or not self.scores:
            if self.recomputed is not None:
                yield ("recomputed",), "recomputed needs both scores and an average to differ from"
            return
        mean = sum(self.scores.values()) / len(self.scores)
        # Papers may average before they round. YAML drops last zeros, so the average has the scores' digits at least.
        unit = _unit(self.scores.values())
        slack = 0.5 * unit + 0.5 * min(unit, _unit([self.average])) + 1e-9
        if abs(mean - self.average) > slack and self.recomputed is None:
            message = f"average {self.average:g}, but the scores' mean is {mean:.2f}"
            yield ("average",), f"{message}; check the numbers, or write 'recomputed: {mean:.2f}' if the paper is wrong"
        if self.recomputed is not None:
            if abs(mean - self.average) <= slack:
                yield ("recomputed",), f"the printed average {self.average:g} follows from the scores; remove it"
            elif abs(mean - self.recomputed) > 0.005 + 1e-9:
                yield ("recomputed",), f"recomputed {self.recomputed:g}, but the scores' mean is {mean:.2f}"


def _unit(values: Iterable[float]) -> float:
    """One unit in the last printed place of the most precise value; papers print one decimal at least."""
    digits = max((len(repr(value).partition(".")[2].rstrip("0")) for value in values), default=1)
    return float(10.0 ** -max(digits, 1))


class PublishedConfig(ConsistentModel):
    """One table of one paper."""

    paper: str = Field(min_length=1)
    table: str = Field(min_length=1, description="as the paper numbers it")
    what: str = Field(min_length=1, description="what it shows, in own words")
    seeds: Annotated[int, Field(ge=1)] | None = Field(None, description="null: the paper does not say")
    statistic: str = Field(min_length=1, description="what a number is: mean over seeds, selected how")
    metrics: dict[Key, str] = Field(description="task or task/set -> the metric of its column")
    rows: Annotated[tuple[PublishedRow, ...], Field(strict=False)]
    missing: str = Field("", description="why rows or columns of the table are not here")
    misprints: Annotated[tuple[str, ...], Field(strict=False)] = Field((), description="known, in words")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        """Unknown metrics; no rows and no reason; misprints that nobody lists."""
        if self.known("metrics"):
            for key, name in self.metrics.items():
                if name not in METRICS.names():
                    yield ("metrics", key), f"unknown metric '{name}'; {suggestion(name, METRICS.names())}"
        if self.known("rows", "missing") and not self.rows and not self.missing:
            yield ("rows",), "no rows, and 'missing' does not say why"
        known = self.known("rows", "misprints")
        if known and not self.misprints and any(row.recomputed is not None for row in self.rows):
            yield ("misprints",), "rows have 'recomputed' averages; list the misprints in words too"


class Published(StrictModel):
    """A table with the name of its file."""

    name: str
    config: PublishedConfig


def read_published(root: Path, name: str) -> Published:
    """Read ``published/<name>.yaml``.

    Raises:
        ConfigError: the file is missing or wrong, or names tasks or methods that are not there.
    """
    root = Path(root)
    document = load_yaml(root / PUBLISHED / f"{name}.yaml", root)
    config, problems = validate(PublishedConfig, document)
    if config is not None:
        tasks, methods = (names_in(root / folder) for folder in (TASKS, METHODS))
        for key in config.metrics:
            task, _, other = key.partition("/")
            for one in filter(None, (task, other)):
                if one not in tasks:
                    message = f"unknown task '{one}'"
                    problems.append(document.problem("unknown-task", ("metrics", key), message, suggestion(one, tasks)))
        for i, row in enumerate(config.rows):
            for key in row.scores:
                if key not in config.metrics:
                    message, hint = f"column '{key}' has no metric", suggestion(key, config.metrics, "columns")
                    problems.append(
                        document.problem("column-without-metric", ("rows", i, "scores", key), message, hint)
                    )
            if row.arm is not None and row.arm not in methods:
                message = f"unknown method '{row.arm}'"
                problems.append(
                    document.problem("unknown-method", ("rows", i, "arm"), message, suggestion(row.arm, methods))
                )
    if config is None or problems:
        raise ConfigError(problems)
    return Published(name=name, config=config)


def published_names(root: Path) -> list[str]:
    """The tables that are there."""
    return names_in(Path(root) / PUBLISHED)


def check_published(root: Path, params: Params, document: Document) -> list[Problem]:
    """Problems of ``report.published``: tables that are not there, or wrong themselves."""
    if not params.known("report") or not params.report.known("published"):
        return []
    names, given = published_names(root), document.data["report"].get("published")
    found = []
    for i, name in enumerate(params.report.published):
        at: KeyPath = ("report", "published", i) if isinstance(given, list) else ("report", "published")
        if name not in names:
            message, hint = f"there is no {PUBLISHED}/{name}.yaml", suggestion(name, names, "tables there")
            found.append(document.problem("unknown-table", at, message, hint))
            continue
        try:
            read_published(root, name)
        except ConfigError as error:
            found += error.problems
    return found

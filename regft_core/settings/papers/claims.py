"""What a paper claims of a table: ``claims`` at the end of ``published/<paper>_<table>.yaml``, in our own words.

A claim says that one method scores higher than others (or varies less over seeds) in some columns of the table, with
each encoder and at each training size whose rows have them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from regft_core.schema import Name, OneOrMoreNames, Size, StrictModel
from regft_core.schema.report import PartName

if TYPE_CHECKING:
    from regft_core.settings.papers.published import PublishedConfig, PublishedRow

#: In ``columns``: every column of a task that both rows print.
ALL = "all"


class Claim(StrictModel):
    """One claim; it holds when it holds for every opponent in every column."""

    says: str = Field(min_length=1, description="the claim, in own words")
    where: str = Field(min_length=1, description="section, caption or table of the paper that makes it")
    arm: Name = Field(description="the method that gains, as it is called here")
    over: OneOrMoreNames = Field(min_length=1, description="what it gains over")
    columns: Annotated[
        tuple[PartName, ...],
        Field(min_length=1, strict=False),
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    ] = Field(description="columns of the table; all: every column of a task")
    encoders: Annotated[tuple[str, ...], Field(strict=False)] = Field((), description="all of the table when absent")
    sizes: Annotated[tuple[Size, ...], Field(strict=False)] = Field((), description="all of the table when absent")
    measure: Literal["mean", "deviation"] = Field(
        "mean", description="deviation: the claim is a smaller standard deviation over seeds"
    )

    def problems(self, config: PublishedConfig) -> Iterator[tuple[str, str]]:
        """Yield (field, message) for arms, columns, encoders and sizes that the table does not have."""
        arms = {row.arm for row in config.rows}
        named: dict[str, tuple[Iterable[str], Collection[str | None]]] = {
            "arm": ((self.arm,) if config.rows else (), arms),
            "over": (self.over if config.rows else (), arms),
            "columns": (
                (key for key in self.columns if key != ALL),
                [k for k, c in config.columns.items() if not c.unit],
            ),
            "encoders": (self.encoders, config.encoders),
            "sizes": (map(str, self.sizes) if config.rows else (), {str(row.size) for row in config.rows}),
        }
        wrong = [(field, name) for field, (given, known) in named.items() for name in given if name not in known]
        yield from ((field, f"the claim is about '{name}', which the table does not have") for field, name in wrong)
        means = [key for key in self.columns if key in config.columns and config.columns[key].mean_of is not None]
        if self.measure == "deviation" and means:
            yield (
                "columns",
                f"'{means[0]}' is a mean, whose deviation papers form in several ways; give tasks or '{ALL}'",
            )
        elif not wrong and not self.settings(config):
            yield "", "no encoder and size of the table has rows of all methods of the claim"

    def settings(self, config: PublishedConfig) -> list[tuple[str, str]]:
        """(encoder, size) of the table's rows that the claim is about; of a table without rows its encoders."""
        if not config.rows:
            every = [(name, str(size)) for name in config.encoders for size in self.sizes or ("full",)]
        else:
            every = list(dict.fromkeys((row.encoder, str(row.size)) for row in config.rows))
        sizes = list(map(str, self.sizes))
        return [
            (encoder, size)
            for encoder, size in every
            if (not self.encoders or encoder in self.encoders)
            and (not sizes or size in sizes)
            and (not config.rows or all(row_of(config, name, encoder, size) for name in (self.arm, *self.over)))
        ]


def row_of(config: PublishedConfig, arm: str, encoder: str, size: str) -> PublishedRow | None:
    """The row of a method, the paper's own before a copied one; None without one."""
    found = [row for row in config.rows if (row.arm, row.encoder, str(row.size)) == (arm, encoder, size)]
    return next((row for row in found if row.copied_from is None), found[0] if found else None)

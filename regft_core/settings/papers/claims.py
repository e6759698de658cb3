"""What a paper claims of a table: ``claims`` at the end of ``published/<paper>_<table>.yaml``, in our own words.

A claim says that one method scores higher than others (or varies less over seeds) in some columns of the table, with
each encoder and at each training size whose rows have them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from regft_core.errors import Problem
from regft_core.names import suggestion
from regft_core.schema import Name, OneOrMoreNames, Size, StrictModel
from regft_core.schema.report import PartName
from regft_core.settings.document import Document

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


def check_claims(config: PublishedConfig, methods: Sequence[str], document: Document) -> Iterator[Problem]:
    """Claims of methods, columns, encoders or sizes that the table does not have."""
    arms = list(dict.fromkeys(row.arm for row in config.rows if row.arm)) if config.rows else list(methods)
    sizes = list(dict.fromkeys(str(row.size) for row in config.rows))
    known: Mapping[str, Sequence[str]] = {
        "column": [key for key, column in config.columns.items() if column.unit is None],
        "encoder": list(config.encoders),
        "size": sizes,
    }
    for i, claim in enumerate(config.claims):
        wrong = False
        given = {
            "method": ([("arm", claim.arm), *(("over", name) for name in claim.over)], arms),
            "column": ([("columns", key) for key in claim.columns if key != ALL], known["column"]),
            "encoder": ([("encoders", name) for name in claim.encoders], known["encoder"]),
            "size": ([("sizes", str(size)) for size in claim.sizes] if config.rows else [], known["size"]),
        }
        for what, (values, allowed) in given.items():
            for field, value in values:
                if value not in allowed:
                    wrong = True
                    message = f"the claim is about {what} '{value}', which the table does not have"
                    hint = suggestion(value, allowed, f"{what}s of the table")
                    yield document.problem("unknown-in-claim", ("claims", i, field), message, hint)
        means = [key for key in claim.columns if key in config.columns and config.columns[key].mean_of is not None]
        if claim.measure == "deviation" and means:
            wrong = True
            message = f"'{means[0]}' is a mean of columns, whose deviation papers form in several ways"
            hint = f"give columns of tasks, or '{ALL}'"
            yield document.problem("deviation-of-mean", ("claims", i, "columns"), message, hint)
        if not wrong and not claim.settings(config):
            message = "no encoder and size of the table has rows of all methods of the claim"
            yield document.problem("claim-without-rows", ("claims", i), message, "name methods that share rows")

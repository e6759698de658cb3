"""The report's table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regft_core.reporting import published
from regft_core.reporting.model import Block, Comparison, Report, Row, Score
from regft_core.reporting.page.formatting import interval, measured, ratio, score
from regft_core.reporting.sentences import looked_at, overall

STYLES = {"better": "green", "worse": "red", "no evidence": "dim", "nothing to judge": "red"}


def summary_table(report: Report) -> RenderableType:
    """One table per block: score with interval on every set, verdicts, failures, cost; then what to take.

    Cost is what the method declares (relative to plain fine-tuning) and what was measured (relative to the reference).
    """
    parts: list[RenderableType] = [Text(report.mark, style="bold red")] if report.mark else []
    for block in report.blocks:
        parts.append(_table(block, report.confidence))
        if block.mixed_environments:
            parts.append(Text("MIXED ENVIRONMENTS: runs of this table were made in different places", style="bold red"))
            parts += [Text(f"  {line}", style="red") for line in block.mixed_environments]
    parts += [Text(text, style="yellow") for text in looked_at(report.blocks)]
    parts += [Text(text, style="bold yellow") for text in report.cut_warnings]
    warned = {text.split(":")[0] for text in report.cut_warnings}
    parts += [Text(text, style="dim") for text in report.truncated if text.split(":")[0] not in warned]
    parts += [Text(text, style="yellow") for text in report.left_out]
    for table in report.published:
        parts += [Text(line, style="" if i else "bold") for i, line in enumerate(published.summary(table))]
    if report.warnings:
        count = len(report.warnings)
        parts.append(Text(f"{count} warning{'s' if count > 1 else ''}; see reports/report.html", style="yellow"))
    parts += [Text(text, style="bold yellow") for text in report.unbeaten]
    for block in report.blocks:
        if block.recommendation is not None:
            parts.append(Text(f"Recommendation: {' '.join(block.recommendation.sentences)}"))
            # No wrapping: a command is copied as it is.
            parts += [
                Text(f"  {command}", style="bold", no_wrap=True, overflow="ignore")
                for command in block.recommendation.commands
            ]
    if report.mark:  # its first sentence, where the reading ends
        parts.append(Text(f"{report.mark.partition('. ')[0]}.", style="bold red"))
    return Group(*parts)


def _table(block: Block, confidence: float) -> Table:
    table = Table(
        title=f"{block.title}: {block.primary}, mean over seeds [{confidence:.0%} interval]", title_justify="left"
    )
    table.add_column("method", overflow="fold")  # a name is never cut
    for name in block.sets:
        table.add_column(name, justify="right")
    for name in ("vs reference", "vs control"):
        table.add_column(name)
    # Declared: relative to plain fine-tuning. Measured: relative to the reference.
    for name in ("seeds", "declared\ncost", "measured\ncost"):
        table.add_column(name, justify="right")
    for row in block.rows:
        bad = len(row.failed)
        seeds = Text(f"{row.n_ok}/{row.n_expected}", style="red" if bad else "")
        if row.collapsed_on_dev:
            seeds.append(f" ({row.collapsed_on_dev} collapsed)", style="red")
        same = f" (same runs as {row.same_runs_as})" if row.same_runs_as else ""
        table.add_row(
            Text(("  " if row.control_for else "") + row.method + same),
            *[_score(row, name, block.primary) for name in block.sets],
            _verdict(row.against("reference")),
            _verdict(row.against("control")),
            seeds,
            ratio(row.cost.plain),
            measured(row.cost.measured, row.cost.spread),
        )
    return table


def _score(row: Row, name: str, metric: str) -> Text:
    found: Score | None = row.scores.get(name, {}).get(metric)
    if found is None:
        return Text("n/a")
    return Text(f"{score(found.estimate.mean, metric)} {interval(found.interval, metric)}")


def _verdict(comparisons: Sequence[Comparison]) -> Text:
    if comparisons and all(c.identical for c in comparisons):
        return Text("identical predictions", style="dim")
    word = overall(comparisons)
    return Text("", style="dim") if word is None else Text(word, style=STYLES[word])

"""A paper's claims with their verdicts for the terminal; the whole table is on the page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from regft_core.report.page.formatting import some
from regft_core.report.published import words
from regft_core.report.published.model import ClaimVerdict, PublishedTable

STYLES = {"reproduced": "green", "smaller": "yellow", "contradicted": "red"}
#: Columns of a claim that are listed; the page has all.
LISTED = 6


def claims(table: PublishedTable, confidence: float) -> Iterator[Text]:
    """The table's title, what makes ours another experiment, and each claim with its comparisons."""
    yield Text(f"{table.where}: {table.what} (side by side in reports/report.html)", style="bold")
    if table.nothing:
        yield Text(f"{table.nothing}.", style="yellow")
    yield from (Text(f"{words.OTHER} {text}", style="yellow") for text in table.otherwise)
    yield from (Text(f"{text}.", style="dim") for text in table.notes)
    for verdict in table.claims:
        line = Text(f"{words.SYMBOLS[verdict.word]} {verdict.word}: ", style=STYLES.get(verdict.word, "bold"))
        yield line.append(words.claimed(verdict), style="default")
        yield from (Text(f"    {line}", style="dim") for line in _comparisons(verdict))
    if table.claims:
        yield Text(words.family(table.claims, confidence), style="dim")


def _comparisons(verdict: ClaimVerdict) -> list[str]:
    """Those that were tested, and why the others were not."""
    tested = [one for one in verdict.tested if one.word != "not tested here"]
    several = len(verdict.tested) > 1
    found = [f"{f'{one.word}: ' if several else ''}{words.judged(one, verdict)}" for one in tested[:LISTED]]
    if len(tested) > LISTED:
        found.append(f"and {len(tested) - LISTED} more in reports/report.html")
    reasons = list(dict.fromkeys(one.why for one in verdict.tested if one.why))
    return found + ([f"not tested: {some(reasons, 3)}"] if reasons else [])

"""A paper's table for the terminal: columns in as many blocks as the width needs, so no number is cut."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from regft_core.report.page.formatting import some
from regft_core.report.published import words
from regft_core.report.published.model import ClaimVerdict, PrintedCell, PublishedTable

STYLES = {"reproduced": "green", "smaller": "yellow", "contradicted": "red"}
#: Widest first column; longer names go on in the next line.
FIRST = 26
#: Narrowest other one.
NARROWEST = 8
#: Between columns.
GAP = 2
#: Columns of a claim that are listed; the page has all.
LISTED = 6


@dataclass(frozen=True)
class PaperTable:
    """Renders as wide as the console is; shorter than the page where claims have many columns."""

    table: PublishedTable
    confidence: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title, the table in blocks, notes, and the claims with their verdicts."""
        table = self.table
        yield Text(f"{table.where}: {table.what}", style="bold")
        if table.nothing:
            yield Text(f"{table.nothing}.", style="yellow")
        if table.rows:
            yield Text("published ± deviation (seeds); below it ours; below that ours − published", style="dim")
            yield from self._blocks(options.max_width)
        for text in table.otherwise:
            yield Text(f"{words.OTHER} {text}", style="yellow")
        for text in table.notes:
            yield Text(f"{text}.", style="dim")
        for verdict in table.claims:
            line = Text(f"{words.SYMBOLS[verdict.word]} {verdict.word}: ", style=STYLES.get(verdict.word, "bold"))
            yield line.append(words.claimed(verdict), style="default")
            yield from (Text(f"    {line}", style="dim") for line in _comparisons(verdict))
        if table.claims:
            yield Text(words.family(table.claims, self.confidence), style="dim")

    def _blocks(self, width: int) -> list[Table]:
        """As many tables below each other as the columns need, each with the first column."""
        heads, lines = words.grid(self.table)
        first = min(FIRST, max(cell_len(part) for head, _ in lines for part in (head.name, *head.small)))
        columns = [_Column.of(head, [cells[i] for _, cells in lines]) for i, head in enumerate(heads)]
        blocks: list[list[_Column]] = [[]]
        room = width - first
        for column in columns:
            if blocks[-1] and room < column.width + GAP:
                blocks.append([])
                room = width - first
            blocks[-1].append(column)
            room -= column.width + GAP
        return [_block(chosen, [head for head, _ in lines], first) for chosen in blocks]


@dataclass(frozen=True)
class _Column:
    head: str
    cells: list[str]
    width: int

    @classmethod
    def of(cls, head: words.Head, cells: list[PrintedCell]) -> _Column:
        shown = [_lines(cell) for cell in cells]
        width = max([NARROWEST, *(cell_len(line) for text in shown for line in text.split("\n"))])
        lines = [line for part in (head.name, *head.small) for line in wrap(part, width)]
        return cls("\n".join(lines), shown, max([width, *map(cell_len, lines)]))


def _block(columns: list[_Column], heads: list[words.Head], first: int) -> Table:
    shown = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    shown.add_column("", width=first, overflow="fold")
    for column in columns:
        shown.add_column(column.head, justify="right", no_wrap=True, width=column.width)
    for i, head in enumerate(heads):
        name = Text(head.name)
        name.append("".join(f"\n{part}" for part in head.small), style="dim")
        shown.add_row(name, *(column.cells[i] for column in columns))
    return shown


def _lines(cell: PrintedCell) -> str:
    gap = [words.bounds(cell.difference, 1)] if cell.difference is not None else []
    return "\n".join([words.published(cell), words.ours(cell), *gap]).strip()


def _comparisons(verdict: ClaimVerdict) -> list[str]:
    """Those that were tested, and why the others were not."""
    tested = [one for one in verdict.tested if one.word != "not tested here"]
    marks = {id(one): f"{one.word}: " if len(verdict.tested) > 1 else "" for one in tested}
    found = [f"{marks[id(one)]}{words.judged(one, verdict)}" for one in tested[:LISTED]]
    if len(tested) > LISTED:
        found.append(f"and {len(tested) - LISTED} more in reports/report.html")
    reasons = list(dict.fromkeys(one.why for one in verdict.tested if one.why))
    return found + ([f"not tested: {some(reasons, 3)}"] if reasons else [])

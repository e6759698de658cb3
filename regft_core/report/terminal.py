"""The leaderboard and the decision for the terminal: the same at any width, nothing cropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.text import Text

from regft_core.names import plural
from regft_core.report.claims import RULE
from regft_core.report.leaderboard import DOWN, UP, Board, Cell, Line, alerts, leaderboard, legend
from regft_core.report.published_table import in_terminal
from regft_core.report.values import Block, Report, smaller

STYLES = {UP: "green", DOWN: "red"}
#: A head and a text for each line.
TextColumn = tuple[str, list[Text]]


def show(report: Report, console: Console) -> None:
    """Print the decision, what needs action, and the leaderboard of every task, at its largest size.

    A command that is longer than the console is wide stays whole, to be copied.
    """
    console.print(Group(*_lines(report, console.width)), crop=False)


def _lines(report: Report, width: int) -> Iterator[Text]:
    if report.mark:
        yield Text(report.mark, style="bold red")
    folded = smaller(report.blocks)
    largest = [block for block in report.blocks if block.name not in folded]
    for block in largest:
        yield Text()
        yield from _block(report, block, width)
    if folded:
        others = ", ".join(block.title for block in report.blocks if block.name in folded)
        yield Text(f"Smaller sizes are in reports/report.html: {others}.")
    yield from (Text(text, style="yellow") for text in report.left_out)
    yield from map(Text, report.more_rows)
    if report.warnings:
        yield Text(f"{plural(len(report.warnings), 'warning')}; see reports/report.html", style="yellow")
    yield from (text for table in report.published for text in in_terminal(table, report.confidence))
    if any(table.claims for table in report.published):
        yield Text(f"Verdicts on claims: {RULE}.", style="dim")


def _block(report: Report, block: Block, width: int) -> Iterator[Text]:
    decision = block.decision
    yield Text(decision.sentences[0], style="bold")
    if not any(row.n_ok for row in block.rows):
        return
    yield Text(" ".join(decision.sentences[1:]))
    yield from (Text(text, style="yellow") for text in alerts(block))
    yield from (Text(f"  {line}", style="red") for line in block.mixed_environments)
    if decision.command:  # without wrapping: it is copied as it is
        yield Text(f"$ {decision.command}", style="bold", no_wrap=True, overflow="ignore")
    yield Text(f"{block.title}: {block.primary}, mean over seeds [{report.confidence:.0%} interval]", style="bold")
    yield from _board(leaderboard(block, report.reference), width)
    yield Text(legend(), style="dim")


def _board(board: Board, width: int) -> Iterator[Text]:
    """A leaderboard as text. Columns that do not fit go on below, the methods' names beside them."""
    first: TextColumn = ("method", [Text(_name(line)) for line in board.lines])
    columns: list[TextColumn] = []
    for column in board.columns:
        marked = any(cell.mark for cell in column.cells)
        columns.append((column.head, [_text(cell, marked) for cell in column.cells]))
    while columns:
        count = 1
        while count < len(columns) and sum(_widths([first, *columns[: count + 1]])) + 2 * (count + 1) <= width:
            count += 1
        yield from _rows([first, *columns[:count]])
        columns = columns[count:]


def _name(line: Line) -> str:
    """Rank and method; controls stand in."""
    rank = "-" if line.rank is None else str(line.rank)
    same = f" (same runs as {line.row.same_runs_as})" if line.row.same_runs_as else ""
    constant = " (constant)" if line.row.constant else ""
    return f"{rank:>3} {'  ' if line.row.control_for else ''}{line.row.method}{same}{constant}"


def _text(cell: Cell, marked: bool) -> Text:
    """One cell; ``marked``: whether some cell of the column has a mark, for which room is left in all of them."""
    text = Text(cell.text, style="" if cell.mark else STYLES.get(cell.style, ""))
    if cell.small:
        text.append(f" {cell.small}", style="dim")
    if marked and cell.text:
        text.append(f" {cell.mark or ' '}", style=STYLES.get(cell.style, ""))
    return text


def _widths(columns: Sequence[TextColumn]) -> list[int]:
    return [max(len(head), *(cell.cell_len for cell in cells)) for head, cells in columns]


def _rows(columns: Sequence[TextColumn]) -> Iterator[Text]:
    """Head and lines; names stand left, all else right."""
    widths = _widths(columns)
    heads = [Text(head, style="dim") for head, _ in columns]
    for cells in (heads, *zip(*(cells for _, cells in columns), strict=True)):
        line = Text(no_wrap=True, overflow="ignore")
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            space = " " * (width - cell.cell_len)
            line.append_text(cell).append(space) if i == 0 else line.append("  " + space).append_text(cell)
        line.rstrip()
        yield line

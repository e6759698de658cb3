"""The leaderboard and the decision for the terminal: the same at any width, nothing cropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from regft_core.report import learning
from regft_core.report.leaderboard import Against, Board, Line, alerts, leaderboard, legend
from regft_core.report.model import Block, Decision, Report
from regft_core.report.page.formatting import NOT_AVAILABLE, interval, measured, ratio, score
from regft_core.report.published.terminal import PaperTable
from regft_core.report.published.words import RULE
from regft_core.statistics.verdict import BELOW_MARK, GAIN, LOSS

STYLES = {GAIN: "green", LOSS: "red"}
#: Characters of a drawn interval.
DRAWN = 21
#: A leaderboard of more lines has the decision below it once more.
SCREEN = 20
Column = tuple[str, list[Text]]


def show(report: Report, console: Console) -> None:
    """Print ``summary_table``; a command that is longer than the console is wide stays whole, to be copied."""
    console.print(summary_table(report), crop=False)


def summary_table(report: Report) -> RenderableType:
    """The decision, what needs action, and the leaderboard of every block.

    Cost is what the method declares and what was measured, plain fine-tuning = 1.
    """
    parts: list[RenderableType] = [Text(report.mark, style="bold red")] if report.mark else []
    for block in report.blocks:
        parts += [Text(), *_block(report, block)]
    warned = {text.split(":")[0] for text in report.cut_warnings}
    parts += [Text(text, style="dim") for text in report.truncated if text.split(":")[0] not in warned]
    parts += [Text(text, style="yellow") for text in report.left_out]
    parts += [Text(learning.sentence(found)) for found in report.more_rows if found.taken]
    if report.warnings:
        count = len(report.warnings)
        parts.append(Text(f"{count} warning{'s' if count > 1 else ''}; see reports/report.html", style="yellow"))
    parts += [PaperTable(table, report.confidence) for table in report.published]
    if any(table.claims for table in report.published):
        parts.append(Text(f"Verdicts on claims: {RULE}.", style="dim"))
    if any(len(block.rows) > SCREEN for block in report.blocks):  # what stood above has left the screen
        for found in (block.decision for block in report.blocks if block.decision is not None):
            parts += [Text(found.sentences[0], style="bold"), *_commands(found)]
    if report.mark:  # its first sentence, where the reading ends
        parts.append(Text(f"{report.mark.partition('. ')[0]}.", style="bold red"))
    return Group(*parts)


def _block(report: Report, block: Block) -> Iterator[RenderableType]:
    found = block.decision
    if found is None:
        yield Text(f"On {block.title} no run finished, so there is nothing to take.")
        return
    yield Text(found.sentences[0], style="bold")
    yield Text(" ".join(found.sentences[1:]))
    for text in alerts(report, block):
        yield Text(text, style="yellow")
    yield from (Text(f"  {line}", style="red") for line in block.mixed_environments)
    yield from _commands(found)
    yield BoardTable(leaderboard(block), report)


def _commands(found: Decision) -> list[Text]:
    """Without wrapping: a command is copied as it is."""
    return [Text(f"$ {command}", style="bold", no_wrap=True, overflow="ignore") for command in found.commands]


class BoardTable:
    """A leaderboard as text. Columns that do not fit go on below, the methods' names beside them."""

    def __init__(self, board: Board, report: Report) -> None:
        self._board, self._confidence, self._reference = board, report.confidence, report.reference

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table within the console's width."""
        block, lines = self._board.block, self._board.lines
        names = [Text(line_name(line)) for line in lines]
        first: Column = ("method", names)
        yield Text(heading(block, self._confidence), style="bold")
        columns, drawn = text_columns(self._board, self._reference), self._drawn()
        # The drawing repeats numbers: it stands where everything fits on one line with it.
        if _width([first, *columns[:1], drawn, *columns[1:]]) <= options.max_width:
            columns.insert(1, drawn)
        while columns:
            count = 1
            while count < len(columns) and _width([first, *columns[: count + 1]]) <= options.max_width:
                count += 1
            yield from _rows([first, *columns[:count]])
            columns = columns[count:]
        yield Text(legend(), style="dim", no_wrap=True, overflow="ignore")

    def _drawn(self) -> Column:
        board, cells = self._board, []
        for line in board.lines:
            found = line.row.scores.get("dev", {}).get(board.block.primary)
            marks = [" "] * DRAWN
            if found is not None and found.estimate.n:
                ends = found.interval or (found.estimate.mean, found.estimate.mean)
                left, right, middle = (round(board.at(v) * (DRAWN - 1)) for v in (*ends, found.estimate.mean))
                marks[left : right + 1] = ["-"] * (right + 1 - left)
                marks[middle] = "<o>"[1 + board.beyond(found.estimate.mean)]
            cells.append(Text("".join(marks)))
        metric = board.block.primary
        return f"{score(board.low, metric)} to {score(board.high, metric)}".ljust(DRAWN), cells


def heading(block: Block, confidence: float) -> str:
    """What the scores of a leaderboard are."""
    return f"{block.title}: {block.primary}, mean over seeds [{confidence:.0%} interval]"


def text_columns(board: Board, reference: str | None) -> list[Column]:
    """The leaderboard's columns beside the methods' names, a text for each line."""
    lines = board.lines
    found = [_scores(board, "dev", bounds=True), *(_scores(board, name, bounds=False) for name in board.sets)]
    if any(line.control for line in lines):
        found.append(("vs control", [_against(line.control) for line in lines]))
    if any(line.reference for line in lines):
        found.append((f"vs {reference}", [_against(line.reference) for line in lines]))
    found.append(("cost", [Text(ratio(line.row.cost.declared)) for line in lines]))
    found.append(("measured", [Text(measured(line.row.cost.measured, line.row.cost.spread)) for line in lines]))
    found.append(("seeds", [_seeds(line) for line in lines]))
    return found


def _scores(board: Board, name: str, *, bounds: bool) -> Column:
    metric, cells = board.block.primary, []
    for line in board.lines:
        found = line.row.scores.get(name, {}).get(metric)
        if found is None or not found.estimate.n:
            cells.append(Text(NOT_AVAILABLE))
            continue
        text = Text(score(found.estimate.mean, metric))
        if bounds:
            text.append(f" {interval(found.interval, metric)}", style="dim")
        text.append(f" {BELOW_MARK}" if name in line.row.no_better(metric) else "  ", style="red")
        cells.append(text)
    return name, cells


def line_name(line: Line) -> str:
    """Rank and method; controls stand in."""
    rank = "-" if line.rank is None else str(line.rank)
    same = f" (same runs as {line.row.same_runs_as})" if line.row.same_runs_as else ""
    return f"{rank:>3} {'  ' if line.row.control_for else ''}{line.row.method}{same}"


def _against(found: Against | None) -> Text:
    return Text() if found is None else Text(found.shown, style=STYLES.get(found.word, ""))


def _seeds(line: Line) -> Text:
    row = line.row
    return Text(f"{row.n_ok}/{row.n_expected}", style="red" if row.failed else "")


def _widths(columns: Sequence[Column]) -> list[int]:
    return [max(len(head), *(cell.cell_len for cell in cells)) for head, cells in columns]


def _width(columns: Sequence[Column]) -> int:
    return sum(_widths(columns)) + 2 * (len(columns) - 1)


def _rows(columns: Sequence[Column]) -> Iterator[Text]:
    """Head and lines; names stand left, all else right."""
    widths = _widths(columns)
    heads = [Text(head, style="dim") for head, _ in columns]
    for cells in [heads, *(list(line) for line in zip(*(cells for _, cells in columns), strict=True))]:
        line = Text(no_wrap=True, overflow="ignore")
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            space = " " * (width - cell.cell_len)
            line.append_text(cell).append(space) if i == 0 else line.append("  " + space).append_text(cell)
        line.rstrip()
        yield line

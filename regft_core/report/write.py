"""Build the report of a grid and write its files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.io.directories import atomic_directory
from regft_core.io.files import write_json, write_text
from regft_core.report import (
    averages,
    environments,
    evaluations,
    learning,
    numbers,
    protocol,
    truncation,
    tuned_values,
)
from regft_core.report.across import across_tasks
from regft_core.report.compare import MethodMeta
from regft_core.report.figures.curves import thinned
from regft_core.report.figures.leaderboard import leaderboard_figure
from regft_core.report.figures.scores import learning_curves
from regft_core.report.figures.svg import standalone
from regft_core.report.interim import FILE, Looks
from regft_core.report.model import Block, PublishedTable, Report
from regft_core.report.opponents import unbeaten
from regft_core.report.page.formatting import listed
from regft_core.report.page.html import render
from regft_core.report.published.ours import Ours
from regft_core.report.published.table import as_numbers, tables
from regft_core.report.read_grid import BlockData, read_grid
from regft_core.report.sentences import findings, looked_at
from regft_core.report.tables import build_block
from regft_core.runs.results.records import MARK
from regft_core.schema.params import SmallScale
from regft_core.schema.report import ReportConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.grid import Cell
from regft_core.settings.papers.published import Published, read_published
from regft_core.settings.project import LeftOut, Project
from regft_core.settings.store_path import store_path

#: Folder of the files that ``dvc metrics show`` reads.
METRICS = "metrics"
CURVE_COLUMNS = ("method", "task", "size", "seed", "phase", "step", "loss", "learning_rate", "gradient_norm")
PUBLISHED_COLUMNS = (
    "table", "method", "arm", "model", "size", "setting", "column", "published", "published_deviation", "ours",
    "our_deviation", "seeds", "difference", "low", "high", "published_gain", "our_gain", "another_experiment", "note",
)  # fmt: skip
LEADERBOARD_COLUMNS = ("task", "size", "method", "set", "metric", "seed", "value")


def project_report(
    project: Project, cells: Iterable[Cell], failed: Mapping[str, str], out: Path | None = Path("reports")
) -> Report:
    """``write_report`` of some cells of a project's grid, with the project's settings."""
    params = project.params
    return write_report(
        project.root,
        cells,
        params.grid.seeds,
        params.report,
        project.methods,
        out,
        training=params.training,
        looks=store_path(project.root, params) / FILE,
        task_training={task: project.shared(task) for task in params.grid.tasks},
        failed=failed,
        small_scale=params.small_scale,
        left_out=project.left_out,
    )


def write_report(
    root: Path,
    cells: Iterable[Cell],
    seeds: Sequence[int],
    report_config: ReportConfig,
    methods_meta: Mapping[str, MethodMeta],
    out: Path | None = Path("reports"),
    *,
    training: TrainingConfig | None = None,
    looks: Path | None = None,
    task_training: Mapping[str, TrainingConfig] | None = None,
    failed: Mapping[str, str] | None = None,
    small_scale: SmallScale | None = None,
    left_out: Mapping[str, Mapping[str, LeftOut]] | None = None,
) -> Report:
    """Write the report's files to ``out``.

    ``report.html``, ``results.json`` (all its numbers), ``metrics/<task>-<size>.json`` (the few that
    ``dvc metrics show`` prints, a line for each), ``plots/curves.csv`` and ``plots/leaderboard.csv``; for
    ``dvc plots show`` pictures, ``plots/leaderboard/<task>-<size>.svg`` and ``plots/loss/<task>-<size>.svg``.

    Args:
        root: project root; ``out`` is relative to it unless absolute. Without ``out`` no file is written and
            no page is drawn; it is still a look at the results.
        cells, seeds: the grid; nothing else in ``work/`` is read.
        methods_meta: the methods by name (``Project.methods``).
        training: the shared training protocol, for the list of what methods override; the
            reference method's own when absent.
        looks: the file that remembers looks at earlier seeds (``looks.FILE`` in the run store); without it
            every look is the first.
        task_training: task -> that protocol with what the task changes; the shared one where absent.
        failed: cells of the grid that have no result, with the reasons: the first warnings of the page.
        small_scale: marks page, terminal and ``results.json`` as not the paper's experiment.
        left_out: declared out-of-distribution sets that do not judge (``Project.left_out``): warnings of the page.

    Raises:
        DataError: a result is missing or contradictory; nothing is written then.
        ConfigError: as ``build_report``; nothing is written either.
        StoreError: a file cannot be written.
    """
    searching = [name for name, method in methods_meta.items() if method.earlier]
    data = [
        replace(block, absent=tuple(_absent(failed or {}, block.name)))
        for block in read_grid(root, cells, seeds, searching)
    ]
    shared = training.model_dump(mode="json") if training is not None else None
    remembered = Looks(looks)
    printed = [read_published(root, name) for name in report_config.published]
    on_tasks = {task: own.model_dump(mode="json") for task, own in (task_training or {}).items()}
    report = build_report(data, seeds, report_config, methods_meta, shared, on_tasks, remembered, printed)
    if failed:
        absent = [f"No result for {cell}: {reason.splitlines()[0]}" for cell, reason in failed.items()]
        report = replace(
            report, warnings=(*absent, *report.warnings), results={**report.results, "failed": dict(failed)}
        )
    report = _marked(report, small_scale, left_out or {})
    curves: dict[str, str] = {}
    if out is not None:
        curves = {block.name: learning_curves(block, own) for block, own in zip(report.blocks, data, strict=True)}
        report = replace(report, html=render(report, data, methods_meta, shared, on_tasks, curves))
    remembered.save()  # before anybody can have seen it
    if out is None:
        return report
    folder = root / out
    write_text(folder / "plots" / "curves.csv", _csv(CURVE_COLUMNS, _curve_rows(data)))
    write_text(folder / "plots" / "leaderboard.csv", _csv(LEADERBOARD_COLUMNS, _leaderboard_rows(report.blocks)))
    beside = folder / "plots" / "published.csv"
    if report.published:
        write_text(beside, _csv(PUBLISHED_COLUMNS, _published_rows(report.published)))
    else:
        beside.unlink(missing_ok=True)
    write_json(folder / "results.json", report.results)
    with atomic_directory(folder / METRICS) as shown:
        for name, own in report.metrics.items():
            write_json(shown / f"{name}.json", own)
    plots = folder / "plots"
    with atomic_directory(plots / "leaderboard") as boards, atomic_directory(plots / "loss") as loss:
        for block in report.blocks:
            write_text(boards / f"{block.name}.svg", standalone(leaderboard_figure(report, block)))
            if drawn := curves[block.name]:
                write_text(loss / f"{block.name}.svg", standalone(drawn))
    write_text(folder / "report.html", report.html)
    return report


def _absent(failed: Iterable[str], block: str) -> Iterator[str]:
    """Methods of the ``failed`` cells (``method/task/size``) of one block."""
    for cell in failed:
        method, task, size = cell.split("/")
        if f"{task}-{size}" == block:
            yield method


def _marked(report: Report, small_scale: SmallScale | None, left_out: Mapping[str, Mapping[str, LeftOut]]) -> Report:
    """The report, saying in page, terminal and ``results.json`` what is less than its configuration's name promises."""
    results = dict(report.results)
    if small_scale is not None:
        results[MARK] = small_scale.mark
    if left_out:
        results["left_out"] = {task: {name: one.why for name, one in sets.items()} for task, sets in left_out.items()}
    out = tuple(
        f"{task} is not judged on {listed([name for name, one in sets.items() if one.why == reason])}: {reason}."
        for task, sets in left_out.items()
        for reason in dict.fromkeys(one.why for one in sets.values())
    )
    mark = small_scale.mark if small_scale is not None else ""
    return replace(report, mark=mark, left_out=out, warnings=(*out, *report.warnings), results=results)


def build_report(
    data: Sequence[BlockData],
    seeds: Sequence[int],
    config: ReportConfig,
    methods: Mapping[str, MethodMeta],
    shared_training: Mapping[str, Any] | None = None,
    task_training: Mapping[str, Mapping[str, Any]] | None = None,
    looks: Looks | None = None,
    printed: Sequence[Published] = (),
) -> Report:
    """Compute everything but the HTML.

    ``task_training`` is the shared protocol as single tasks change it, ``printed`` are tables of papers to put beside.

    Raises:
        ConfigError: arms of one comparison do not share their encoder, or their environment (``environments.check``).
        DataError: predictions do not give the recorded metrics.
    """
    marks = environments.check(data, config.mixed_environments)
    blocks = tuple(
        replace(block, mixed_environments=marks.get(block.name, ()))
        for block in (
            build_block(
                block,
                methods,
                config,
                seeds,
                (task_training or {}).get(block.task, shared_training),
                looks=looks,
                blocks=len(data),
            )
            for block in data
        )
    )
    present = {row.method for block in blocks for row in block.rows}
    order = {block.name: [row.method for row in block.rows] for block in blocks}
    found = evaluations.sections(data, order, config.confidence, config.reference)
    results = numbers.results(blocks)
    words = findings(blocks, config.reference)
    for one in words:
        results[one.block][one.method]["findings"] = list(one.sentences)
    tuned = tuned_values.tuned_arms(data)
    columns = averages.average_columns(blocks, config.averages, config.reference)
    if columns:
        results["averages"] = averages.as_numbers(columns)
    for block, methods_of in evaluations.as_numbers(found).items():
        for method, own in methods_of.items():
            results[block][method]["evaluations"] = own
    more = learning.more_rows(blocks, {block.name: block.subsample.n for block in data})
    beside = tables(printed, Ours(data, blocks, config, seeds))
    if beside:
        results["published"] = as_numbers(beside)
    return Report(
        reference=config.reference if config.reference in present else None,
        confidence=config.confidence,
        seeds=tuple(seeds),
        blocks=blocks,
        across=across_tasks(blocks, config) if len(blocks) > 1 else (),
        findings=words,
        # What the model never saw comes before everything else.
        warnings=(
            *truncation.warnings(data),
            *evaluations.failures(data),
            *tuned_values.warnings(tuned),
            *looked_at(blocks),
            *protocol.warnings(data, methods, config.reference, seeds, marks),
        ),
        unbeaten=unbeaten(blocks),
        truncated=truncation.summary(data),
        cut_warnings=truncation.warnings(data),
        evaluations=found,
        published=beside,
        results=results,
        averages=columns,
        more_rows=more,
        tuned=tuned,
        metrics=numbers.primary(blocks),
    )


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _curve_rows(data: Sequence[BlockData]) -> Iterable[Sequence[Any]]:
    for block in data:
        for cell in block.cells.values():
            for p in thinned(cell.curves or ()):
                place = (cell.method, block.task, block.size, p.seed, p.phase, p.step)
                yield *place, p.loss, p.learning_rate, p.gradient_norm


def _leaderboard_rows(blocks: Sequence[Block]) -> Iterable[Sequence[Any]]:
    for block in blocks:
        for row in block.rows:
            for name, scores in row.scores.items():
                for metric, score in scores.items():
                    for seed, value in zip(score.estimate.seeds, score.estimate.values, strict=True):
                        yield block.task, block.size, row.method, name, metric, seed, value


def _published_rows(tables: Sequence[PublishedTable]) -> Iterable[Sequence[Any]]:
    for table in tables:
        for row in table.rows:
            for cell in row.cells:
                if not cell.printed:
                    continue
                printed, ours, gap = cell.published, cell.ours, cell.difference
                numbers = (
                    *((printed.value, printed.deviation) if printed else (None, None)),
                    *((ours.value, ours.deviation, ours.seeds) if ours else (None, None, 0)),
                    *((gap.value, gap.low, gap.high) if gap else (None, None, None)),
                    *(cell.published_gain, cell.our_gain),
                )
                place = (table.name, row.method, row.arm or "", row.model, row.size, row.setting, cell.key)
                notes = "; ".join([*cell.notes, *([cell.why] if cell.why else [])])
                yield *place, *("" if n is None or n != n else n for n in numbers), "; ".join(cell.otherwise), notes

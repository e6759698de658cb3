"""Read what the stages left in ``work/``, compute what it shows (numbers, figures, one HTML file), and write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from regft_core.disk.canonical import json_text
from regft_core.disk.files import atomic_directory, write_json, write_text
from regft_core.report import averages, evaluations, facts, results, warnings
from regft_core.report.figures import standalone
from regft_core.report.figures.block import answer_figures, figures
from regft_core.report.looks import FILE, Looks
from regft_core.report.page import render
from regft_core.report.published_table import published_tables
from regft_core.report.read_grid import Inputs, read_grid
from regft_core.report.scores import build_block
from regft_core.report.values import Report
from regft_core.report.wrong_answers import answers_of
from regft_core.settings.project import Cell, Project
from regft_core.settings.published import read_published
from regft_core.settings.yaml_paths import store_path

OUT = Path("reports")


def project_inputs(project: Project, cells: Iterable[Cell], failed: Mapping[str, str]) -> Inputs:
    """Some cells of a project's grid, with the project's settings."""
    params = project.params
    return Inputs(
        project.root,
        list(cells),
        params.grid.seeds,
        params.report,
        project.methods,
        project.controls,
        training={task: project.shared(task) for task in params.grid.tasks},
        looks=store_path(project.root, params) / FILE,
        failed=failed,
        mark=params.small_scale.mark if params.small_scale is not None else "",
        left_out=project.left_out,
    )


def write_report(inputs: Inputs, out: Path | None = OUT) -> Report:
    """Write the page, ``results.json``, tables, metrics and figures to ``out`` (relative to the project root).

    Without ``out`` no file is written and no page is drawn; it is still a look at the results. Raises as
    ``build_report``, when nothing is written, and StoreError where a file cannot be written.
    """
    looks = Looks(inputs.looks)
    report = build_report(inputs, looks)
    if out is None:
        looks.save()
        return report
    drawn = {block.name: figures(block) for block in report.blocks}
    answered = {block.name: list(answer_figures(block, report.answers[block.name])) for block in report.blocks}
    report = replace(report, html=render(report, inputs, drawn, answered))
    looks.save()  # before anybody can have seen it
    folder = inputs.root / out
    texts = {
        folder / "tables": {
            f"{name}.csv": table.to_csv(index=False, lineterminator="\n")
            for name, table in results.tables(report.blocks).items()
        },
        folder / "metrics": {f"{name}.json": json_text(own) for name, own in results.primary(report.blocks).items()},
        folder / "figures": {
            f"{name}/{figure}.svg": standalone(svg) for name, own in answered.items() for figure, _, svg in own
        },
        **{
            folder / "plots" / place: {f"{name}.svg": standalone(own[of]) for name, own in drawn.items() if own[of]}
            for place, of in (("leaderboard", "scores"), ("loss", "curves"))
        },
    }
    for place, files in texts.items():
        with atomic_directory(place) as target:
            for name, text in files.items():
                write_text(target / name, text)
    write_json(folder / "results.json", report.results)
    write_text(folder / "report.html", report.html)
    return report


def build_report(inputs: Inputs, looks: Looks) -> Report:
    """Read the grid and compute everything but the HTML.

    Raises:
        ConfigError: methods of one comparison do not share their encoder or environment (``warnings.environments``).
        DataError: as ``read_grid``, or predictions do not give the recorded metrics.
    """
    config, data = inputs.config, read_grid(inputs)
    printed = {name: read_published(inputs.root, name) for name in config.published}
    mixed = warnings.environments(data, config.mixed_environments)
    blocks = tuple(build_block(own, inputs, looks, len(data), mixed.get(own.name, ())) for own in data)
    tuned, sections = facts.tuned_arms(blocks), evaluations.sections(blocks, config.confidence, config.reference)
    report = Report(
        reference=config.reference if any(block.row(config.reference) for block in blocks) else None,
        confidence=config.confidence,
        seeds=tuple(inputs.seeds),
        blocks=blocks,
        across=averages.across_tasks(blocks) if len(blocks) > 1 else (),
        warnings=warnings.all_warnings(blocks, inputs, tuned, sections),
        mark=inputs.mark,
        left_out=warnings.left_out(inputs),
        evaluations=sections,
        published=published_tables(printed, blocks, config, inputs.seeds),
        averages=averages.average_columns(blocks, config.averages),
        more_rows=averages.more_rows(blocks),
        tuned=tuned,
        answers={block.name: answers_of(block, inputs.root, inputs.seeds) for block in blocks},
    )
    return replace(report, results=results.results(report, inputs))

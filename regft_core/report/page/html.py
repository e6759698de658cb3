"""``report.html``: one file that needs nothing else, filled in from ``report.html.j2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from regft_core import metrics
from regft_core.hooks.registry import discover
from regft_core.names import plural
from regft_core.report import learning, protocol, sentences
from regft_core.report.compare import MethodMeta
from regft_core.report.costs import overrides
from regft_core.report.families import GROUPED_ABOVE, grouped
from regft_core.report.figures import evaluations as evaluation_figures
from regft_core.report.figures import scores as figures
from regft_core.report.figures.averages import average_bars
from regft_core.report.figures.epochs import epoch_curves, epoch_note
from regft_core.report.figures.search import search_curves
from regft_core.report.figures.sizes import size_figures
from regft_core.report.figures.svg import LIGHT
from regft_core.report.figures.tuning import best_of_k
from regft_core.report.leaderboard import alerts, leaderboard
from regft_core.report.model import Block, Comparison, Report, Row
from regft_core.report.page import formatting
from regft_core.report.page.emphasis import chosen
from regft_core.report.published import words
from regft_core.report.read_grid import BlockData
from regft_core.settings.method_sources import settings
from regft_core.statistics import verdict


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("regft_core.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "score",
        "interval",
        "ratio",
        "seconds",
        "memory",
        "setting",
        "number",
        "unit",
        "quantity",
        "signed_quantity",
    ):
        environment.filters[name] = getattr(formatting, name)
    environment.filters["measured"] = lambda cost: formatting.measured(cost.measured, cost.spread)
    environment.filters["plural"] = plural
    environment.filters["listed"] = lambda words: formatting.listed(list(words))
    environment.filters["capitalise"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["sort_value"] = _sort_value
    environment.filters["detectable"] = sentences.detectable
    environment.filters["looks"] = sentences.looks
    environment.filters["more_rows"] = learning.sentence
    for own in (words.bounds, words.published, words.ours, words.remarks, words.claimed, words.judged):
        environment.filters[own.__name__] = own
    environment.globals |= {"grid": words.grid, "family": words.family, "rule": words.RULE}
    environment.globals |= {"symbols": words.SYMBOLS, "other_mark": words.OTHER}
    environment.globals["verdicts"] = verdict
    environment.globals["light"] = LIGHT
    environment.globals["styles"] = {
        verdict.GAIN: "up",
        verdict.LOSS: "down",
        verdict.SAME: "none",
        verdict.NONE: "none",
    }
    environment.globals["spread_of_words"] = " / ".join((verdict.GAIN, verdict.SAME, verdict.LOSS))
    environment.globals["seed_values"] = lambda estimate: zip(estimate.seeds, estimate.values, strict=True)
    environment.globals["factor"] = formatting.factor
    environment.globals["counts_examples"] = lambda metric: metrics.find(metric).counts_examples
    return environment


def _sort_value(value: float | None) -> str:
    """The full value for sorting and for those who read the source; empty when there is none."""
    return "" if value is None or value != value else repr(float(value))


def render(
    report: Report,
    data: Sequence[BlockData],
    methods: Mapping[str, MethodMeta],
    shared_training: Mapping[str, Any] | None,
    task_training: Mapping[str, Mapping[str, Any]] | None,
    curves: Mapping[str, str],
) -> str:
    """Return the page. All text from files is escaped; only the figures are markup.

    ``curves``: block -> its learning curves, which are files, too.
    """
    cells = [cell for block in data for cell in block.cells.values()]
    present = list(dict.fromkeys(row.method for block in report.blocks for row in block.rows))
    return _environment().get_template("report.html.j2").render(
        report=report,
        blocks=[_block(report, block, own, curves[block.name]) for block, own in zip(report.blocks, data, strict=True)],
        scale={
            f"board-{block.name}": [formatting.factor(block.primary), metrics.find(block.primary).digits]
            for block in report.blocks
        },
        matrix=_matrix(report),
        evaluation_figures=_evaluation_figures(report),
        size_figures=size_figures(report, data),
        average_figures=_average_figures(report),
        methods={name: methods[name] for name in present},
        uses={name: _uses(report, name) for name in present},
        sources=[
            (name, one)
            for name in present
            for one in settings(methods[name], discover())
            if one.given or one.value is not None
        ],
        diagnostics=[entry for block in data for entry in protocol.diagnostics(block)],
        data_facts=protocol.data_facts(data),
        models=[model.plain() for model in protocol.distinct(cells, "model")],
        versions=protocol.distinct(cells, "versions"),
        training=shared_training or _reference_training(report, data),
        tuning_figures={
            block.name: Markup(best_of_k([arm for arm in report.tuned if arm.block == block.name], report.reference))
            for block in report.blocks
        },
        on_tasks={
            task: changed
            for task, own in (task_training or {}).items()
            if (changed := overrides(own, shared_training))
        },
        failed=[(block, row, seed, text) for block in report.blocks for row in block.rows for seed, text in row.failed],
        collapsed=[(block, row, how) for block in report.blocks for row in block.rows for how in _collapsed(row)],
        runs=[(block, cell, run) for block in data for cell in block.cells.values() for run in cell.runs],
    )  # fmt: skip


def _reference_training(report: Report, data: Sequence[BlockData]) -> Mapping[str, Any]:
    for block in data:
        if report.reference is not None and report.reference in block.cells:
            return block.cells[report.reference].finetune.training
    return {}


def _block(report: Report, block: Block, data: BlockData, curves: str) -> dict[str, Any]:
    families = grouped(block)
    rows = [row for _, own in families for row in own]
    return {
        "block": block,
        "board": leaderboard(block),
        "alerts": alerts(report, block),
        "controls": sum(bool(row.control_for) for row in rows),
        "rows": rows,
        "large": len(rows) > GROUPED_ABOVE,
        "sets": [name for name in block.sets if any(name in row.scores for row in block.rows)],
        # Of many arms the seeds of the primary metric are in the figure and in leaderboard.csv only.
        "listed": [metric for metric in block.metrics if metric != block.primary or len(rows) <= GROUPED_ABOVE],
        "pairs": _pairs(rows),
        "without_curve": [name for name, cell in data.cells.items() if not cell.curves],
        "figures": {
            "scores": Markup(figures.scores(block)),
            "differences": Markup(figures.differences(block)),
            "curves": Markup(curves),
            "cost": Markup(figures.cost_and_score(block)),
            "search": Markup(search_curves(block, data, chosen(block, report.reference, data.cells))),
            "epochs": Markup(epoch_curves(block, data)),
        },
        "epoch_note": epoch_note(block, data),
    }


def _collapsed(row: Row) -> list[tuple[str, list[int]]]:
    """(how, seeds) of the collapsed runs of one arm."""
    found: dict[str, list[int]] = {}
    for seed, how in row.collapsed:
        found.setdefault(how, []).append(seed)
    return list(found.items())


def _average_figures(report: Report) -> dict[str, Markup]:
    """Average -> its columns at all training sizes as a figure."""
    names = dict.fromkeys(average.name for average in report.averages)
    own = {name: [average for average in report.averages if average.name == name] for name in names}
    return {name: Markup(svg) for name in names if (svg := average_bars(own[name], report.reference or ""))}


def _evaluation_figures(report: Report) -> dict[tuple[str, str], dict[str, Markup]]:
    """(evaluation, block) -> name of a table that says how it is drawn -> figure."""
    found: dict[tuple[str, str], dict[str, Markup]] = {}
    blocks = {block.name: block for block in report.blocks}
    for section in report.evaluations:
        for entry in section.found:
            own = found.setdefault((section.name, entry.block), {})
            present = {table.method for shown in entry.tables.values() for table in shown}
            picked = chosen(blocks[entry.block], report.reference, present)
            for name in dict.fromkeys(name for _, name in entry.tables):
                tables = {place: shown for (place, other), shown in entry.tables.items() if other == name}
                key = f"{section.name}-{name}-{entry.block}".replace(", ", "-").replace(" ", "-")
                title = f"{section.name}: {name} on {entry.title}"
                try:
                    svg = evaluation_figures.plotted(key, title, tables, picked)
                except Exception as error:  # a table of a plug-in may hold anything: it costs its own figure
                    own[name] = escape(f"It cannot be drawn: {type(error).__name__}: {error}")
                    continue
                if svg:
                    own[name] = Markup(svg)
    return found


def _pairs(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of the table of differences: a method's controls first, then the reference."""
    found = []
    for row in rows:
        groups: dict[tuple[str, str], dict[str, Comparison]] = {}
        for c in row.comparisons:
            groups.setdefault((c.role, c.other), {})[c.set] = c
        for (role, other), by_set in sorted(groups.items(), key=lambda item: item[0][0] != "control"):
            first = next(iter(by_set.values()))
            found.append({"row": row, "role": role, "other": other, "by_set": by_set, "first": first})
    return found


def _matrix(report: Report) -> list[dict[str, Any]]:
    """Method by block: the development-set words of all comparisons."""
    names = list(dict.fromkeys(finding.method for finding in report.findings))
    found = {(finding.method, finding.block): finding for finding in report.findings}
    return [{"method": name, "cells": [found.get((name, block.name)) for block in report.blocks]} for name in names]


def _uses(report: Report, name: str) -> dict[str, Any]:
    """What the runs of one method were, over all blocks."""
    rows: list[Row] = [row for block in report.blocks if (row := block.row(name)) is not None]
    return {
        "variants": list(dict.fromkeys(variant for row in rows for variant in row.variants)),
        "degraded": list(dict.fromkeys(text for row in rows for text in row.degraded)),
        "overrides": {key: values for row in rows for key, values in row.overrides.items()},
        "devices": list(dict.fromkeys(device for row in rows for device in row.cost.devices)),
    }

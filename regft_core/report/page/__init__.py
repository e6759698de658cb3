"""``report.html``: one file that needs nothing else, filled in from ``report.html.j2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import isfunction
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from regft_core import metrics
from regft_core.data import lengths
from regft_core.data.splits import split_line
from regft_core.disk.canonical import canonical_json
from regft_core.hooks.registry import discover
from regft_core.names import plural
from regft_core.report import claims, facts, formatting, looks, published_table
from regft_core.report.facts import overrides
from regft_core.report.figures import LIGHT
from regft_core.report.figures.evaluation_charts import over_sizes, table_figures
from regft_core.report.leaderboard import alerts, leaderboard
from regft_core.report.read_grid import Inputs
from regft_core.report.scores import as_control
from regft_core.report.values import Block, Comparison, Report, Row, by_size, smaller
from regft_core.report.wrong_answers import MOST_LABELS
from regft_core.settings.layers import settings
from regft_core.statistics import verdict

#: With more methods than this, tables and figures of all of them are folded.
FOLDED_ABOVE = 12


@lru_cache(maxsize=1)
def _environment() -> Environment:
    loader = PackageLoader("regft_core.report.page", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for module in (formatting, looks, published_table, claims):
        functions = [f for f in vars(module).values() if isfunction(f) and f.__module__ == module.__name__]
        environment.filters |= {function.__name__: function for function in functions}
    environment.filters |= {
        "capitalise": lambda text: text[:1].upper() + text[1:],
        # The full value for sorting and for those who read the source; empty when there is none.
        "sort_value": lambda value: "" if value is None or value != value else repr(float(value)),
    }
    others = (plural, facts.draws, split_line, lengths.in_order, lengths.share)
    environment.filters |= {function.__name__: function for function in others}
    environment.globals |= {
        **{"grid": published_table.grid, "family": claims.family, "rule": claims.RULE},
        "most_labels": MOST_LABELS,
        **{"symbols": claims.SYMBOLS, "other_mark": published_table.OTHER, "verdicts": verdict, "light": LIGHT},
        "styles": {verdict.GAIN: "up", verdict.LOSS: "down", verdict.SAME: "none", verdict.NONE: "none"},
        "spread_of_words": " / ".join((verdict.GAIN, verdict.SAME, verdict.LOSS)),
        "factor": formatting.factor,
    }
    return environment


def render(
    report: Report,
    inputs: Inputs,
    drawn: Mapping[str, Mapping[str, str]],
    answered: Mapping[str, Sequence[tuple[str, str, str]]],
) -> str:
    """Return the page, with the figures of each block, ``drawn`` and ``answered``. All text from files is escaped."""
    manifests = [cell.finetune for block in report.blocks for cell in block.cells.values()]
    methods, rows = inputs.methods, [(block, row) for block in report.blocks for row in block.rows]
    present = list(dict.fromkeys(row.method for _, row in rows))
    protocols = {task: training.model_dump(mode="json") for task, training in inputs.training.items()}
    shared: dict[str, Any] = next(iter(protocols.values()), {})
    size_scores, size_numbers = over_sizes(report)
    on_tasks = {task: overrides(own, shared) for task, own in protocols.items()}
    return _environment().get_template("report.html.j2").render(
        report=report,
        blocks=[_block(report, block, drawn[block.name], answered[block.name]) for block in report.blocks],
        folded=smaller(report.blocks),
        scale={
            f"board-{block.name}": [formatting.factor(block.primary), metrics.find(block.primary).digits]
            for block in report.blocks
        },
        answered=any(report.answers.values()),
        origin=facts.origin(inputs.root),
        table_figures=table_figures,
        size_scores=size_scores,
        size_numbers=size_numbers,
        methods={name: methods[name] for name in present},
        as_control={name: as_control(name, inputs) for name in present},
        uses={name: _uses([pair for pair in rows if pair[1].method == name]) for name in present},
        sources=[
            (name, source)
            for name in present
            for source in settings(methods[name], discover())
            if source.given or source.value is not None
        ],
        tasks=by_size(report.blocks),
        models=[*{canonical_json(trained.model): trained.model for trained in manifests}.values()],
        versions=[*{canonical_json(trained.versions): trained.versions for trained in manifests}.values()],
        training=shared,
        on_tasks={task: changed for task, changed in on_tasks.items() if changed},
        failed=[(block, row, *failure) for block, row in rows for failure in row.failed.items()],
        collapsed=[(block, row, *collapse) for block, row in rows for collapse in row.collapsed.items()],
        runs=[(block, cell, run) for block in report.blocks for cell in block.cells.values() for run in cell.runs],
    )  # fmt: skip


def _block(
    report: Report, block: Block, drawn: Mapping[str, str], answered: Sequence[tuple[str, str, str]]
) -> dict[str, Any]:
    rows, large = block.rows, len(block.rows) > FOLDED_ABOVE
    return {
        "block": block,
        "answer_figures": [(caption, Markup(svg)) for _, caption, svg in answered],
        "counts": facts.row_counts(block),
        "board": leaderboard(block, report.reference),
        "alerts": alerts(block),
        "controls": sum(bool(row.control_for) for row in rows),
        "large": large,
        "sets": list(block.set_rows),
        # Of many methods the seeds of the primary metric are in the figure and in scores.csv only.
        "best_epoch": [row.method for row in rows if row.finetune.training.get("checkpoint", "last") != "last"],
        "listed": [metric for metric in block.described.metrics if metric != block.primary or not large],
        "pairs": [pair for row in rows for pair in _pairs(row)],
        "without_curve": [name for name, cell in block.cells.items() if cell.curves.empty],
        "figures": {name: Markup(svg) for name, svg in drawn.items()},
    }


def _pairs(row: Row) -> list[dict[str, Any]]:
    """Rows of the table of differences: a method's controls first, then the reference and the best frozen encoder."""
    groups: dict[tuple[str, str], dict[str, Comparison]] = {}
    for c in sorted([*row.comparisons, *row.opposed], key=lambda c: c.role not in ("control", "replacement")):
        groups.setdefault((c.role, c.other), {})[c.set] = c
    return [
        {"row": row, "role": role, "other": other, "by_set": by_set, "first": next(iter(by_set.values()))}
        for (role, other), by_set in groups.items()
    ]


def _uses(of: Sequence[tuple[Block, Row]]) -> dict[str, Any]:
    """Variants, degradations and changed settings of a method's runs, with the tasks of what not all of them change."""
    rows, changes = [row for _, row in of], dict[str, tuple[str, Any, list[str]]]()
    for block, row in of:
        for key, values in row.overrides.items():
            changes.setdefault(canonical_json([key, values]), (key, values, []))[2].append(block.task)
    return {
        "variants": list(dict.fromkeys(variant for row in rows for variant in row.variants)),
        "degraded": list(dict.fromkeys(text for row in rows for text in row.degraded)),
        "overrides": [(*change, [*dict.fromkeys(on)] * (len(on) < len(of))) for *change, on in changes.values()],
    }

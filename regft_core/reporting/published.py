"""Printed numbers beside ours: an arm of a paper against the same arm here, its gain against our gain, nothing across.

A published baseline is never the opponent of a method that ran here, nor the other way round: seeds, rows, code and
selection differ between them, and runs of one baseline by two groups lie further apart than most gains (0.92
points for DPS in weight mixup's table 3). ``difference`` refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regft_core import metrics
from regft_core.config.papers.averages import leaves
from regft_core.config.papers.published import Published, PublishedConfig, PublishedRow
from regft_core.names import plural
from regft_core.reporting.model import Block, Printed, PublishedTable
from regft_core.reporting.page.formatting import listed, number
from regft_core.statistics.bootstrap import Estimate
from regft_core.statistics.welch import welch_interval

AVERAGE = "average"


@dataclass(frozen=True)
class Measured:
    """A mean over seeds in points, of whom, and what its uncertainty is made of."""

    arm: str
    #: ``task``, ``task/set`` or ``average``
    key: str
    mean: float
    #: (variance of the mean over seeds, number of seeds) of every score in it; empty when no deviation is known.
    parts: tuple[tuple[float, int], ...]


def difference(published: Measured, ours: Measured, confidence: float) -> tuple[float, float, float]:
    """Return (ours - published, low, high) of one arm on one column, in points.

    The interval is Welch's over seeds; both were judged on the same development set, whose own sampling
    error is in both. Where the paper gives no deviation or number of seeds, only the spread of ours is in it.

    Raises:
        ValueError: the two are of different arms or columns; a published baseline is no opponent of ours.
    """
    if (published.arm, published.key) != (ours.arm, ours.key):
        raise ValueError(
            f"published {published.arm} on {published.key} and our {ours.arm} on {ours.key} are not compared: numbers "
            "of a paper are put beside the same arm on the same column only; run the baseline here"
        )
    value = ours.mean - published.mean
    return (value, *welch_interval(value, [*ours.parts, *published.parts], confidence))


def tables(
    published: Sequence[Published],
    blocks: Sequence[Block],
    models: Mapping[str, str],
    reference: str,
    confidence: float,
) -> tuple[PublishedTable, ...]:
    """Put the tables beside the report's blocks.

    Args:
        models: method -> the encoder that it ran with here.
        reference: what gains are over, published ones too.
    """
    return tuple(_table(one, blocks, models, reference, confidence) for one in published)


def _table(
    one: Published, blocks: Sequence[Block], models: Mapping[str, str], reference: str, confidence: float
) -> PublishedTable:
    config, ours_models = one.config, set(models.values())
    present = {row.method for block in blocks for row in block.rows}
    own = [row for row in config.rows if row.copied_from is None]
    plain = [_plain(model) for model in ours_models]
    same = [row for row in own if row.arm in present and _plain(config.model(row) or "") in plain]
    lines, notes = [], []
    for row in same:
        lines += _row(row, config, blocks, same, reference, confidence)
    if config.rows and not same:
        encoders = list(dict.fromkeys(config.model(row) or row.encoder for row in own))
        arms = list(dict.fromkeys(row.arm for row in own if row.arm is not None))
        ran = listed(sorted(ours_models)) or "no encoder"
        notes.append(
            f"Nothing is compared: it was run here with {ran}, the table has {listed(encoders)} (arms {listed(arms)})."
        )
    absent = [row.method for row in own if row.arm is not None and row.arm not in present]
    if same and absent:
        notes.append(
            f"Not run here, and not put in the place of anything: {listed(list(dict.fromkeys(absent)))} as published."
        )
    if config.seeds is None and same:
        notes.append("The paper does not say how many seeds; intervals hold the spread of our runs only.")
    if config.missing:
        notes.append(f"Missing: {config.missing}.")
    notes += [f"Misprint: {text}." for text in config.misprints]
    where = f"{config.paper}, table {config.table}"
    return PublishedTable(one.name, where, config.what, config.statistic, tuple(lines), tuple(notes))


def _plain(model: str) -> str:
    return model.rsplit("/", 1)[-1].lower()


def _row(
    row: PublishedRow,
    config: PublishedConfig,
    blocks: Sequence[Block],
    rows: Sequence[PublishedRow],
    reference: str,
    confidence: float,
) -> list[Printed]:
    assert row.arm is not None
    base = next((b for b in rows if b.arm == reference and (b.encoder, b.size) == (row.encoder, row.size)), None)
    found = []
    for key in row.scores:
        weights = _weights(key, config)
        if not weights:
            continue
        printed = _printed(row, key, config)
        mine = _measured(row.arm, key, weights, config.metrics, row.size, blocks)
        against = (
            mine
            if mine is None or reference == row.arm
            else _measured(reference, key, weights, config.metrics, row.size, blocks)
        )
        theirs = _printed(base, key, config) if base is not None and base is not row and key in base.scores else None
        beside = difference(printed, mine, confidence) if mine is not None else None
        found.append(
            Printed(
                method=row.method,
                arm=row.arm,
                model=config.model(row) or row.encoder,
                size=str(row.size),
                key=key,
                metric=config.metrics.get(key, ""),
                published=printed.mean,
                published_deviation=row.deviations.get(key),
                ours=mine.mean if mine is not None else None,
                seeds=min((n for _, n in mine.parts), default=1) if mine is not None else 0,
                difference=beside,
                published_gain=printed.mean - theirs.mean if theirs is not None else None,
                our_gain=mine.mean - against.mean
                if mine is not None and against is not None and row.arm != reference
                else None,
                note=_note(row, key, mine, printed),
            )
        )
    return found


def _note(row: PublishedRow, key: str, mine: Measured | None, printed: Measured) -> str:
    parts = [row.note] if row.note else []
    if key in row.recomputed:
        parts.append(f"printed as {row.scores[key]:.2f}, which is not the mean of the scores")
    if mine is None:
        parts.append("not all of it was run here with this metric and number of rows")
    elif not printed.parts:
        parts.append("no published deviation: the interval is of our seeds alone")
    return "; ".join(parts)


def _weights(key: str, config: PublishedConfig) -> dict[str, float]:
    """Columns of tasks -> their weight in the column ``key``; empty for a column that is nothing here."""
    column = config.columns[key]
    if column.mean_of is None:
        return {key: 1.0} if column.metric is not None else {}
    found = {
        task if own == "dev" else f"{task}/{own}": weight for (task, own), weight in leaves(column.mean_of).items()
    }
    return found if set(found) <= set(config.metrics) else {}


def _printed(row: PublishedRow, key: str, config: PublishedConfig) -> Measured:
    """What the paper prints; a mean as it follows from the scores where the printed one does not."""
    value = row.recomputed.get(key, row.scores[key])
    seeds, weights = config.seeds, _weights(key, config)
    known = seeds is not None and seeds > 1 and set(weights) <= set(row.deviations)
    parts = tuple(
        (share**2 * row.deviations[one] ** 2 / seeds, seeds) for one, share in weights.items() if known and seeds
    )
    return Measured(row.arm or "", key, value, parts)


def _measured(
    arm: str,
    key: str,
    weights: Mapping[str, float],
    columns: Mapping[str, str],
    size: int | str,
    blocks: Sequence[Block],
) -> Measured | None:
    """Our mean over ``weights``; None unless each was run at this size and judged by the column's metric."""
    found = [_score(arm, one, columns[one], size, blocks) for one in weights]
    scores = [score for score in found if score is not None]
    if len(scores) < len(weights):
        return None
    scales = [metrics.find(columns[one]).factor * share for one, share in weights.items()]
    parts = [
        (scale**2 * one.seed_deviation**2 / one.n, one.n)
        for scale, one in zip(scales, scores, strict=True)
        if one.n > 1
    ]
    mean = sum(scale * one.mean for scale, one in zip(scales, scores, strict=True))
    return Measured(arm, key, mean, tuple(parts) if len(parts) == len(scores) else ())


def _score(arm: str, key: str, metric: str, size: int | str, blocks: Sequence[Block]) -> Estimate | None:
    task, _, other = key.partition("/")
    for block in blocks:
        row = block.row(arm)
        if block.task == task and block.size == str(size) and row is not None:
            score = row.scores.get(other or "dev", {}).get(metric)
            return score.estimate if score is not None and score.estimate.n else None
    return None


# ------------------------------------------------------------------------------------ words


def bounds(found: tuple[float, float, float] | None) -> str:
    """``+1.2 [-0.3, +2.7]``; the interval only where there is one."""
    if found is None:
        return "n/a"
    value, low, high = found
    if math.isnan(low):
        return number(value, 2, signed=True)
    return f"{number(value, 2, signed=True)} [{number(low, 2, signed=True)}, {number(high, 2, signed=True)}]"


def summary(table: PublishedTable) -> list[str]:
    """A few lines for the terminal: averages, or all columns of tables without."""
    compared = [line for line in table.lines if line.ours is not None]
    shown = [line for line in compared if line.key == AVERAGE] or compared
    text = [f"published beside ours: {table.where} ({table.what})"]
    for line in shown[:12]:
        gains = ""
        if line.our_gain is not None and line.published_gain is not None:
            gains = f"; gain published {number(line.published_gain, 2, True)}, ours {number(line.our_gain, 2, True)}"
        text.append(
            f"  {line.arm} {line.key}: published {line.published:.2f}, ours {number(line.ours, 2)} "
            f"({plural(line.seeds, 'seed')}), difference {bounds(line.difference)}{gains}"
        )
    if len(shown) > 12:
        text.append(f"  and {len(shown) - 12} more in reports/report.html")
    if not shown:
        text += [f"  {note}" for note in table.notes[:1]] or ["  nothing of it was run here; see the report"]
    return text

"""What a table prints, asked by row and column, and the difference of ours to it.

A published baseline is never the opponent of a method that ran here, nor the other way round: seeds, rows, code and
selection differ between them, and runs of one baseline by two groups lie further apart than most gains (0.92
points for DPS in weight mixup's table 3). ``difference`` refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from regft_core.report.published.ours import Ours, Place
from regft_core.settings.checks.report_sets import leaves
from regft_core.settings.papers.encoders import Encoder, named
from regft_core.settings.papers.published import PublishedConfig, PublishedRow
from regft_core.statistics.reproduction import Bounds, welch_interval


@dataclass(frozen=True)
class Measured:
    """A mean over seeds in points, of whom, and what its uncertainty is made of."""

    arm: str
    key: str
    mean: float
    #: (variance of the mean over seeds, number of seeds) of every score in it; empty when no deviation is known.
    parts: tuple[tuple[float, int], ...]


def difference(published: Measured, ours: Measured, confidence: float) -> Bounds:
    """Return ours - published of one arm on one column, in points, with its interval.

    The interval is Welch's over seeds; both were judged on the same validation set, whose own sampling
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
    if not ours.parts:
        return Bounds(value)
    return Bounds(value, *welch_interval(value, [*ours.parts, *published.parts], confidence))


class Paper:
    """What a table prints, asked by row and column."""

    def __init__(self, config: PublishedConfig) -> None:
        self.config = config
        self.shown = [key for key in config.columns if any(key in {**row.scores, **row.gains} for row in config.rows)]
        self.sizes = list(dict.fromkeys(str(row.size) for row in config.rows))
        self.known = list(
            dict.fromkeys(self.encoder(name, key) for name in config.encoders for key in [*config.metrics, ""])
        )

    def encoder(self, name: str, key: str) -> Encoder:
        """What the runs of a column start from."""
        entry = self.config.encoders[name]
        return named(entry.instead.get(key) or entry.model or name)

    def weights(self, key: str) -> dict[str, float]:
        """Columns of tasks -> their weight in the column ``key``; empty for a column that is nothing here."""
        column = self.config.columns[key]
        if column.mean_of is None:
            return {key: 1.0} if column.metric is not None else {}
        parts = leaves(column.mean_of).items()
        found = {task if own == "dev" else f"{task}/{own}": weight for (task, own), weight in parts}
        return found if set(found) <= set(self.config.metrics) else {}

    def value(self, row: PublishedRow, key: str) -> float:
        """What is printed; a mean as it follows from the scores where the printed one does not."""
        return row.recomputed.get(key, row.scores[key])

    def gain(self, row: PublishedRow, base: PublishedRow, key: str) -> float | None:
        """The printed gain of ``row`` over ``base``: of their scores, or the one that the row prints."""
        if key in row.scores and key in base.scores:
            return self.value(row, key) - self.value(base, key)
        return row.gains.get(key) if row.gain_over == base.method else None

    def parts(self, row: PublishedRow, key: str) -> tuple[tuple[float, int], ...]:
        """(variance of the mean, seeds) of what is printed; of a mean by its parts' deviations, else by its own.

        The printed deviation of a mean may be the mean of its parts' deviations, which is never smaller.
        """
        seeds, weights = self.config.seeds, self.weights(key)
        if seeds is None or seeds < 2:
            return ()
        if weights and set(weights) <= set(row.deviations):
            return tuple((share**2 * row.deviations[one] ** 2 / seeds, seeds) for one, share in weights.items())
        return ((row.deviations[key] ** 2 / seeds, seeds),) if key in row.deviations else ()

    def measured(self, row: PublishedRow, key: str) -> Measured:
        """The printed number of a row's arm."""
        return Measured(row.arm or "", key, self.value(row, key), self.parts(row, key))

    def places(self, ours: Ours, arm: str, encoder: str, size: str, key: str) -> list[tuple[Place, float]] | str:
        """Where the number of a column is here, or why it is nowhere."""
        weights, found = self.weights(key), []
        for one, weight in weights.items():
            metric = self.config.metrics[one]
            place = ours.place(arm, one, metric, self.encoder(encoder, one), size, self.sizes, self.known)
            if isinstance(place, str):
                return place
            found.append((place, weight))
        return found or "it is no score of a task here"

"""What a table prints, asked by row and column, and where the same numbers are here."""

from __future__ import annotations

from regft_core.report.published.ours import Ours, Places
from regft_core.settings.checks.report_sets import leaves
from regft_core.settings.papers.encoders import Encoder, named
from regft_core.settings.papers.published import PublishedConfig, PublishedRow


class Paper:
    """A table of a paper (``config``) beside what ran here (``ours``)."""

    def __init__(self, config: PublishedConfig, ours: Ours) -> None:
        self.config, self.ours = config, ours
        self.sizes = list(dict.fromkeys(str(row.size) for row in config.rows))
        starts = (self._encoder(name, key) for name in config.encoders for key in [*config.metrics, ""])
        self._encoders = list(dict.fromkeys(starts))

    def _encoder(self, name: str, key: str) -> Encoder:
        """What the runs of a column start from."""
        entry = self.config.encoders[name]
        return named(entry.instead.get(key) or entry.model or name)

    def _weights(self, key: str) -> dict[str, float]:
        """Columns of tasks -> their weight in the column ``key``; empty for a column that is nothing here."""
        column = self.config.columns[key]
        if column.mean_of is None:
            return {key: 1.0} if column.metric is not None else {}
        parts = leaves(column.mean_of).items()
        weights = {task if name == "dev" else f"{task}/{name}": weight for (task, name), weight in parts}
        return weights if set(weights) <= set(self.config.metrics) else {}

    def gain(self, row: PublishedRow, base: PublishedRow, key: str) -> float | None:
        """The printed gain of ``row`` over ``base``: of their scores (misprints recomputed), or as printed."""
        if key in row.scores and key in base.scores:
            return row.recomputed.get(key, row.scores[key]) - base.recomputed.get(key, base.scores[key])
        return row.gains.get(key) if row.gain_over == base.method else None

    def parts(self, row: PublishedRow, key: str) -> list[tuple[float, int]]:
        """(variance of the mean, seeds) of what is printed; of a mean by its parts' deviations, else by its own.

        The printed deviation of a mean may be the mean of its parts' deviations, which is never smaller.
        """
        seeds, weights = self.config.seeds, self._weights(key)
        if seeds is None or seeds < 2:
            return []
        if weights and set(weights) <= set(row.deviations):
            return [(share**2 * row.deviations[part] ** 2 / seeds, seeds) for part, share in weights.items()]
        return [(row.deviations[key] ** 2 / seeds, seeds)] if key in row.deviations else []

    def places(self, arm: str, encoder: str, size: str, key: str) -> Places | str:
        """Where the number of a column is here, or why it is nowhere."""
        places = []
        for part, weight in self._weights(key).items():
            start = self._encoder(encoder, part)
            place = self.ours.place(arm, part, self.config.metrics[part], start, size, self.sizes, self._encoders)
            if isinstance(place, str):
                return place
            places.append((place, weight))
        return places or "it is no score of a task here"

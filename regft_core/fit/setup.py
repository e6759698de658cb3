"""Which encoder, folds, methods and trials fit the minutes: the rule of ``regft fit``.

The strongest encoder that is on this disk and leaves time for the first method of ``pipelines/own_data.yaml``, with
five folds, else three. Then, each if it still fits: the next method, a second training for every tuned method, the
other methods one by one, a third training, a second repeat of the folds where rows are few. Without time for any method
that trains the encoder, those that are always listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from regft_core import shipped
from regft_core.errors import ConfigError, Problem
from regft_core.names import plural
from regft_core.schema import Name, NameList, StrictModel
from regft_core.schema.training import TrainingConfig
from regft_core.settings.document import load_yaml
from regft_core.settings.validate import validate

PRESET = "pipelines/own_data.yaml"
#: Folds that are tried, and the repeats that minutes may add to files of at most so many rows.
FOLDS = (5, 3)
MOST_REPEATS, FEW_ROWS = 2, 400
#: Seconds beside training: processes that start, the report, the export.
AROUND = 40.0
#: The final model, trained on all rows with settings that are known then, is counted as one more run.
REFIT = 1.0


class OwnTuning(StrictModel):
    """``tuning`` of the preset: trials of each method, grouped by the training that they share."""

    folds: Annotated[int, Field(ge=2, le=20)]
    methods: dict[Name, list[Annotated[list[dict[str, Any]], Field(min_length=1)]]] = Field({})


class OwnPreset(StrictModel):
    """``pipelines/own_data.yaml``."""

    always: NameList = Field(description="methods that train no encoder; the last is the reference of differences")
    methods: NameList = Field(description="in the order in which minutes add them")
    training: TrainingConfig
    tuning: OwnTuning

    def trials(self, methods: Sequence[str], trainings: int) -> dict[str, list[dict[str, Any]]]:
        """The trials of each method with so many trainings; {} where there is one trial, which needs no choice."""
        own = {
            name: [trial for one in self.tuning.methods.get(name, [])[:trainings] for trial in one] for name in methods
        }
        return {name: trials if len(trials) > 1 else [] for name, trials in own.items()}

    def fixed(self, methods: Sequence[str], trainings: int) -> dict[str, dict[str, Any]]:
        """Method -> its only trial, whose values are settings then."""
        own = {name: self.tuning.methods.get(name, [])[:trainings] for name in methods}
        return {name: one[0][0] for name, one in own.items() if len(one) == 1 and len(one[0]) == 1}

    @property
    def most_trainings(self) -> int:
        """Trainings of the method that tries most."""
        return max((len(one) for one in self.tuning.methods.values()), default=1)


def read_preset(root: Path) -> OwnPreset:
    """The preset of the project, else the shipped one. Raises ConfigError with all that is wrong in it."""
    own = root / PRESET
    document = load_yaml(own if own.is_file() else shipped.FOLDER / PRESET, root)
    found, problems = validate(OwnPreset, document)
    if found is None or problems:
        raise ConfigError(problems)
    return found


@dataclass(frozen=True)
class Setup:
    """A set-up: ``trainings`` of every tuned method are tried inside each of ``folds`` times ``repeats`` runs."""

    encoder: str
    folds: int
    methods: tuple[str, ...]
    trainings: int = 1
    repeats: int = 1

    @property
    def seeds(self) -> list[int]:
        """A seed for each fold of each repeat."""
        return list(range(self.folds * self.repeats))


#: (encoder, folds, trainings) -> seconds of one worker for one run of each method, its trials included.
Prices = Callable[[str, int, int], Mapping[str, float]]


@dataclass(frozen=True)
class Chooser:
    """Chooses the set-up.

    Attributes:
        encoders: those on this disk, the strongest first.
        rows: of the file.
        most: folds at most: rows of the rarest label, or groups where there are fewer; None without either.
        workers: runs at a time.
    """

    preset: OwnPreset
    prices: Prices
    encoders: Sequence[str]
    rows: int
    most: int | None
    workers: int

    def seconds(self, setup: Setup) -> float:
        """Wall-clock seconds of a set-up, the final model included."""
        prices = self.prices(setup.encoder, setup.folds, setup.trainings)
        own = [prices[name] for name in setup.methods]
        return AROUND + sum(own) * len(setup.seeds) / self.workers + REFIT * max(own, default=0.0)

    def choose(self, minutes: float) -> tuple[Setup, float]:
        """The set-up for the minutes, and its seconds. Raises ConfigError with the minutes of the smallest one."""
        budget = 60 * minutes
        folds = [count for count in FOLDS if self.most is None or count <= self.most]
        always, more = tuple(self.preset.always), tuple(self.preset.methods)
        starts = [
            Setup(encoder, count, always + first)
            for first in ((more[:1], ()) if more else ((),))
            for encoder in self.encoders
            for count in folds
        ]
        for start in starts:
            if self.seconds(start) <= budget:
                found = self._more(start, [name for name in more if name not in start.methods], budget)
                return found, self.seconds(found)
        least = min(starts, key=self.seconds)
        needed = max(1, -(-int(self.seconds(least)) // 60))
        message = f"{minutes:g} minutes are too few for {', '.join(least.methods)} with {least.folds} folds"
        hint = f"give --minutes {needed} or more, or fewer rows ({plural(self.rows, 'row')} now)"
        raise ConfigError([Problem("too-few-minutes", "--minutes", 0, "", message, hint)])

    def _more(self, setup: Setup, methods: Sequence[str], budget: float) -> Setup:
        def add(name: str) -> Callable[[Setup], Setup]:
            return lambda old: replace(old, methods=(*old.methods, name))

        def tried(count: int) -> Callable[[Setup], Setup]:
            return lambda old: replace(old, trainings=count)

        counts = range(2, self.preset.most_trainings + 1)
        steps = [add(name) for name in methods[:1]] + [tried(count) for count in counts[:1]]
        steps += [add(name) for name in methods[1:]] + [tried(count) for count in counts[1:]]
        if self.rows <= FEW_ROWS:
            steps += [lambda old: replace(old, repeats=MOST_REPEATS)]
        for step in steps:
            larger = step(setup)
            if self._same(setup, larger):
                continue  # more trainings where nothing is tuned
            if self.seconds(larger) <= budget:
                setup = larger
        return setup

    def _same(self, setup: Setup, larger: Setup) -> bool:
        """Whether both run the same."""
        trials = [self.preset.trials(one.methods, one.trainings) for one in (setup, larger)]
        return trials[0] == trials[1] and replace(larger, trainings=setup.trainings) == setup

"""Which encoder, folds, methods and trials fit the minutes: the rule of ``regft fit``.

The strongest encoder that is on this disk and leaves time for the first tuned method of ``pipelines/own_data.yaml`` and
those before it, with five folds. Then, each if it still fits: more trainings of the final model, which has the mean of
their weights; a second repeat of the folds where rows are few, the next method, a second training for every tuned
method, the other methods one by one, a third training, runs with a quarter and half of the rows for a forecast.
Without time for that start, the methods before the tuned one, else those that are always listed, with five folds, else
three: fewer folds never pay for a tuned method.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from regft_core import shipped
from regft_core.data.examples import Example
from regft_core.data.lengths import WORTH_UNKNOWN, Lengths, share
from regft_core.errors import ConfigError, Problem
from regft_core.models.fetch import ALIASES
from regft_core.models.source import encoder_problems
from regft_core.names import plural, suggestion
from regft_core.schema import Inconsistency, Name, NameList, StrictModel
from regft_core.schema.method import Method
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.settings.document import KeyPath, load_yaml
from regft_core.settings.validate import validated

PRESET = "pipelines/own_data.yaml"
#: Encoders from strong to weak that are tried without ``--model``.
ENCODERS = ("mpnet", "minilm")
#: Folds that are tried, and the repeats that minutes may add to files of at most so many rows.
FOLDS = (5, 3)
MOST_REPEATS, FEW_ROWS = 2, 400
#: Sizes of a forecast, as parts of the rows that train a fold's model, and the rows that the smallest needs of a label.
PARTS, LEAST_OF_LABEL = (4, 2), 10
#: Points by which scores of two methods differ by chance, times the root of the rows: a preferred method is given up
#: for more.
CHANCE = 40.0
#: Seconds of the model of words for a row of two labels, typical of a core; not measured, so that the same call chooses
#: the same set-up. What is late by it is left out of the comparison.
SOLVING = 1e-3
#: Seconds of solved models, folds included, in those of the model of words; 1.5 times those of an Intel Xeon.
SOLVED = {"tfidf_logistic": 1.0, "linear_head": 1.7, "stacking": 3.0}


class OwnTuning(StrictModel):
    """``tuning`` of the preset: trials of each method, grouped by the training that they share."""

    folds: Annotated[int, Field(ge=2, le=20)]
    methods: dict[Name, list[Annotated[list[dict[str, Any]], Field(min_length=1)]]] = Field({})


class OwnPreset(StrictModel):
    always: NameList = Field(description="methods that train no encoder; the last is the reference of differences")
    methods: NameList = Field(description="in the order in which minutes add them")
    prefer: NameList = Field((), description="report.prefer: those that are among the methods")
    unlabelled: NameList = Field((), description="after the first tuned method where there are texts without labels")
    refit: dict[Name, dict[Name, Annotated[int, Field(ge=2, le=20)]]] = Field(
        {}, description="phases of final models that minutes add trainings to: their number"
    )
    training: TrainingConfig
    tuning: OwnTuning

    def inconsistencies(self) -> Iterator[Inconsistency]:
        listed = *self.always, *self.methods, *self.unlabelled
        named: dict[KeyPath, str] = {("prefer", place): name for place, name in enumerate(self.prefer)}
        named |= {("tuning", "methods", name): name for name in self.tuning.methods}
        named |= {("refit", name): name for name in self.refit}
        for at, name in named.items():
            if name not in listed:
                yield at, f"'{name}' is not listed: {suggestion(name, listed)}"

    def with_texts(self) -> OwnPreset:
        """Return the preset for rows beside which there are texts without labels."""
        place = next((at for at, name in enumerate(self.methods, start=1) if name in self.tuning.methods), 0)
        methods = *self.methods[:place], *self.unlabelled, *self.methods[place:]
        return self.model_copy(update={"methods": methods})

    def trials(self, method: str, trainings: int) -> list[dict[str, Any]]:
        """Return the trials of a method with so many trainings; a single one is no choice but its settings."""
        return [trial for training in self.tuning.methods.get(method, [])[:trainings] for trial in training]

    def settings(self, method: str, trainings: int, *, refit: bool) -> dict[str, Any]:
        """Return the settings of a method that are no choice: a single trial, and the trainings of the final model."""
        trials = self.trials(method, trainings)
        several = self.refit.get(method, {}) if refit else {}
        return (trials[0] if len(trials) == 1 else {}) | {f"phases.{phase}.refit": several[phase] for phase in several}

    def trainings(self, methods: Sequence[str]) -> int:
        return max((len(self.tuning.methods.get(name, [])) for name in methods), default=1)


def read_preset(root: Path) -> OwnPreset:
    """Return the preset of the project, else the shipped one. Raises ConfigError with all that is wrong in it."""
    own = root / PRESET
    return validated(OwnPreset, load_yaml(own if own.is_file() else shipped.FOLDER / PRESET, root))


def encoders_here(root: Path, name: str | None) -> tuple[list[str], list[Problem]]:
    """Return the encoders of this disk, the strongest first, or the one that was asked for; else what is wrong."""
    problems = {one: encoder_problems(EncoderConfig(name=one), root) for one in (ENCODERS if name is None else (name,))}
    if here := [one for one, wrong in problems.items() if not wrong]:
        return here, []
    if name is not None and name not in ALIASES and not (root / name).is_dir():
        hint = f"{suggestion(name, ALIASES, 'aliases')}; or give a folder that save_pretrained wrote"
        return [], [Problem("model-missing", "--model", 0, "", f"'{name}' is no alias and no directory", hint)]
    return [], [
        Problem(code, "--model", 0, "", text, ALIASES[one].advice if one in ALIASES else hint)
        for one, wrong in problems.items()
        for _, code, message in wrong[:1]
        for text, _, hint in [message.partition("\n    -> ")]
    ]


#: Letters of an English text are in this script; more than this share of others makes it another language.
SCRIPT, OTHER_SCRIPT = "LATIN", 0.2
#: Compares texts by their characters, so it reads any language.
BY_CHARACTERS = "tfidf_logistic_characters"
#: Encoders of about a hundred languages, on the Hugging Face hub.
MULTILINGUAL = ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "FacebookAI/xlm-roberta-base")


def unread(examples: Sequence[Example], encoder: str, lengths: Lengths) -> str | None:
    """Return why an encoder does not read the texts, and what does; None where it seems to."""
    unknown, other = lengths.unknown / max(1, lengths.total), other_script(examples)
    if unknown > WORTH_UNKNOWN:
        why = f"{share(unknown)} of the tokens are not in its vocabulary"
    elif encoder in ALIASES and other > OTHER_SCRIPT:  # encoders with an alias were trained on English
        why = f"it was trained on English, and {share(other)} of the letters are of another script"
    else:
        return None
    return (
        f"warning: {encoder} does not read these texts: {why}. {BY_CHARACTERS} reads any. For better scores, "
        f"get a multilingual encoder (for instance {' or '.join(MULTILINGUAL)} on huggingface.co) and give its folder "
        "with --model"
    )


def other_script(examples: Sequence[Example]) -> float:
    """Return the share of letters that are not Latin ones, of all letters of the texts."""
    letters = Counter(letter for one in examples for letter in f"{one.text}{one.text_pair or ''}" if letter.isalpha())
    other = sum(count for letter, count in letters.items() if not unicodedata.name(letter, "").startswith(SCRIPT))
    return other / max(1, letters.total())


@dataclass(frozen=True)
class Setup:
    """A set-up: ``trainings`` of every tuned method are tried inside each of ``folds`` times ``repeats`` runs.

    ``forecast``: also with parts of the rows. ``refit``: the final model is the mean of several trainings, where the
    preset says so. ``serial``: in this process.
    """

    encoder: str
    folds: int
    methods: tuple[str, ...]
    trainings: int = 1
    repeats: int = 1
    forecast: bool = False
    refit: bool = False
    serial: bool = False

    @property
    def size(self) -> float:
        """Runs of all sizes, in runs with all rows."""
        return 1.0 + (sum(1 / part for part in PARTS) if self.forecast else 0.0)


@dataclass(frozen=True)
class Price:
    """Seconds of one worker for one ``run`` of a method with its trials, and for the ``vectors`` of all its runs.

    Methods that ``read`` the rows alike share the vectors. ``final``: of the final model; ``more``: of its further
    trainings, where it is the mean of several.
    """

    run: float
    final: float
    vectors: float = 0.0
    read: tuple[str, ...] = ()
    more: float = 0.0


def choose(
    preset: OwnPreset,
    methods: Sequence[str],
    encoders: Sequence[str],
    rows: int,
    most: int | None,
    seconds: Callable[[Setup], float],
    minutes: float,
    may_forecast: bool = True,
) -> tuple[Setup, str]:
    """Return the set-up for the minutes, and what more minutes would buy next, with their number; empty if nothing.

    Args:
        methods: those that minutes add and that can act on the rows.
        encoders: the strongest first.
        most: folds at most; None: any.
        seconds: of a set-up, on the wall.
        may_forecast: whether parts of the rows can be trained on.

    Raises ConfigError with the minutes of the smallest set-up.
    """
    always, folds = tuple(preset.always), [count for count in FOLDS if most is None or count <= most]
    tuned = next((place for place, name in enumerate(methods) if name in preset.tuning.methods), 0)
    starts = [
        Setup(encoder, count, (*always, *first))
        for first, counts in {tuple(methods[: tuned + 1]): folds[:1], tuple(methods[:tuned]): folds, (): folds}.items()
        for encoder in encoders
        for count in counts
    ]
    budget = 60 * minutes
    setup = next((start for start in starts if seconds(start) <= budget), None)
    if setup is None:
        least = min(starts, key=seconds)
        message = f"{minutes:g} minutes are too few for {', '.join(least.methods)} with {least.folds} folds"
        needed = math.ceil(seconds(least) / 60)
        hint = f"give --minutes {needed} or more, or fewer rows ({plural(rows, 'row')} now)"
        raise ConfigError([Problem("too-few-minutes", "--minutes", 0, "", message, hint)])
    steps: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in methods if name not in setup.methods]
    counts = range(2, preset.trainings(methods) + 1)
    trainings = [(f"{count} trainings of each tuned method", {"trainings": count}) for count in counts]
    steps = [*steps[:1], *trainings[:1], *steps[1:], *trainings[1:]]  # the second training after the second method
    if may_forecast:
        steps.append(("a forecast for more rows", {"forecast": True}))
    # More folds and repeats make every number more precise: of few rows they come first, else they take what is left.
    repeats = f"{MOST_REPEATS} repeats of the folds", {"repeats": MOST_REPEATS}
    steps.insert(0 if rows <= FEW_ROWS else len(steps), repeats)
    if not preset.refit.keys().isdisjoint(setup.methods):  # two trainings, where a repeat is five
        steps.insert(0, ("more trainings of the final model", {"refit": True}))
    dearer = [(f"{folds[0]} folds", replace(setup, folds=folds[0]))] if setup.folds < folds[0] else []
    for what, more in steps:
        if more.get("trainings", 0) > preset.trainings(setup.methods):
            continue
        larger = replace(setup, **more or {"methods": (*setup.methods, what)})
        if seconds(larger) <= budget:
            setup = larger
        else:
            dearer.append((what, larger))
    if not dearer:
        return setup, ""
    what, larger = dearer[0]
    # A first method comes before repeats, and so costs less than it does beside them.
    wanted = min(seconds(one) for one in (larger, *starts) if one is larger or what in one.methods)
    return setup, f"{what} from --minutes {math.ceil(wanted / 60)}"


def reading(method: Method, texts: int) -> Method:
    """Return a method whose phases without labels read so many ``texts``, where they read all that there are."""
    phases = [
        replace(phase, data=phase.data.model_copy(update={"size": texts}))
        if phase.data.size == "full" and not phase.data.labels
        else phase
        for phase in method.phases
    ]
    return replace(method, phases=tuple(phases))


def solving_seconds(method: Method, rows: int, models: float) -> float:
    """Return the seconds of a method's solved models of ``rows``, each as much as so many models of two labels."""
    parts = sum(SOLVED.get(name, 0.0) for phase in method.phases for name, _ in phase.regularisers)
    return SOLVING * rows * (1 + rows / 1_500) * models * parts

"""Generated tasks with a true signal and a controlled spurious cue, so that shortcuts have a known truth.

- ``cue_sentence``: is the opinion negative or positive? The main clause decides; a concession
  says the opposite, negation turns words around, neutral sentences vary the length.
- ``cue_pair``: do two sentences describe the same event? Synonyms, passive voice and moved
  phrases keep it; exchanged roles, negation or one other word change it.
- ``cue_regression``: in how many of five slots (0 to 5) do two events agree?

The cue is a fixed phrase ("Sent from my phone."). In ``train`` and ``dev`` it agrees with the
label with probability ``agreement``; in ``no_cue`` it is absent; in ``reversed`` it agrees with
the opposite label with that probability. Rows of ``dev``, ``no_cue`` and ``reversed`` with the same
number differ in the cue only, so their scores are paired.

A row is a pure function of (generator, split, row number, options).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from regft_core.data import builtin_words as words
from regft_core.data.examples import Example
from regft_core.rng import derive, shuffled
from regft_core.schema import StrictModel

SPLITS = ("train", "dev", "no_cue", "reversed")
#: Changing it changes every built-in dataset; it is no option on purpose.
SEED = 20_240_229
_CUES = {"cue_sentence": words.SENTENCE_CUES, "cue_pair": words.PAIR_CUES, "cue_regression": words.REGRESSION_CUES}
_SLOTS = (words.PEOPLE, words.ACTIONS, words.PEOPLE, words.PLACES, words.TIMES)

Count = Annotated[int, Field(ge=1, le=1_000_000)]
T = TypeVar("T")


class RowCounts(StrictModel):
    """Rows of each split."""

    train: Count = 2000
    dev: Count = 400
    no_cue: Count = 400
    reversed: Count = 400


class BuiltinOptions(StrictModel):
    """``source.options`` of a built-in task."""

    rows: RowCounts = RowCounts()
    agreement: float = Field(0.9, ge=0, le=1, description="share of rows whose cue agrees with the label")
    label_noise: float = Field(0.0, ge=0, le=0.5, description="share of training rows with a wrong label")
    difficulty: Literal["easy", "hard"] = Field(
        "hard", description="easy: short texts, little negation, no concession or passive: for jobs of minutes on a CPU"
    )


def generate(generator: str, split: str, options: Mapping[str, Any]) -> list[Example]:
    """Return all rows of one of ``SPLITS``. Raises pydantic's error for wrong options."""
    parsed = BuiltinOptions.model_validate(dict(options))
    return [_example(generator, split, number, parsed) for number in range(getattr(parsed.rows, split))]


def _example(generator: str, split: str, number: int, options: BuiltinOptions) -> Example:
    # The evaluation splits share the stream of their content and differ in that of the cue's use.
    content = Random(derive(SEED, generator, "train" if split == "train" else "evaluation", number))
    extra = Random(derive(SEED, generator, "cue", "train" if split == "train" else "evaluation", number))
    easy = options.difficulty == "easy"
    if generator == "cue_sentence":
        label: int | float = int(content.random() * 2)
        text, pair = (_plain_opinion if easy else _opinion)(content, bool(label)), None
    elif generator == "cue_pair":
        label = int(content.random() * 2)
        text, pair = _same_or_different(content, bool(label), easy)
    else:
        label = float(int(content.random() * 6))
        text, pair = _graded(content, int(label), easy)
    follows, noise, other = extra.random() < options.agreement, extra.random(), extra.random()
    if split == "train" and noise < options.label_noise:
        label = float(int(label + 1 + other * 5) % 6) if generator == "cue_regression" else 1 - label
    if split != "no_cue":
        # The cue of the label (or, reversed, of its opposite), or another one.
        cues, top = _CUES[generator], len(_CUES[generator]) - 1
        level = top - int(label) if split == "reversed" else int(label)
        cue = cues[level if follows else (level + 1 + int(other * top)) % (top + 1)]
        text, pair = (f"{text} {cue}", None) if pair is None else (text, f"{cue} {pair}")
    return Example(f"{split}-{number}", text, pair, label)


def _pick(rng: Random, items: Sequence[T]) -> T:
    # Random.random() is the one method whose sequence Python promises to keep.
    return items[int(rng.random() * len(items))]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


# ------------------------------------------------------------------------------ cue_sentence


def _opinion(rng: Random, positive: bool) -> str:
    own, opposite = (words.GOOD, words.BAD) if positive else (words.BAD, words.GOOD)
    acts = words.GOOD_ACTS if positive else words.BAD_ACTS
    verbs = words.GOOD_VERBS if positive else words.BAD_VERBS
    thing, degree = _pick(rng, words.THINGS), _pick(rng, words.DEGREES)
    main = _pick(
        rng,
        (
            f"{thing} was {degree}{_pick(rng, own)}",
            f"{thing} {_pick(rng, verbs)} me and {_pick(rng, acts)}",
            f"{thing} was not {_pick(rng, opposite)} at all",
            f"nobody could call {thing} {_pick(rng, opposite)}",
            f"there was nothing {_pick(rng, opposite)} about {thing}",
            f"we tried {thing} and {_pick(rng, acts)}",
            f"{thing} turned out to be {degree}{_pick(rng, own)}",
        ),
    )
    least = 1
    if rng.random() < 0.4:
        least = 0
        opener = _pick(rng, words.OPENERS)
        link = ", but " if opener in ("Granted,", "I admit that") else ", "
        main = f"{opener} {_pick(rng, words.ASPECTS)} was {_pick(rng, opposite)}{link}{main}"
    sentences = [_sentence(main)]
    # A main clause alone has too few forms: the same text would come up in training and evaluation.
    for template in shuffled(words.DISTRACTORS, rng)[: max(least, int(rng.random() ** 2 * 4))]:
        filled = template.format(**{key: _pick(rng, items) for key, items in words.FILLERS.items()})
        sentences.insert(int(rng.random() * (len(sentences) + 1)), filled)
    return " ".join(sentences)


def _plain_opinion(rng: Random, positive: bool) -> str:
    own, opposite = (words.GOOD, words.BAD) if positive else (words.BAD, words.GOOD)
    thing = _pick(rng, words.THINGS)
    if rng.random() < 0.55:
        main = f"{thing} was {_pick(rng, words.DEGREES)}{_pick(rng, own)}"
    else:
        main = f"{thing} was not {_pick(rng, opposite)} at all"
    template = _pick(rng, words.DISTRACTORS)
    other = template.format(**{key: _pick(rng, items) for key, items in words.FILLERS.items()})
    return f"{_sentence(main)} {other}" if rng.random() < 0.5 else f"{other} {_sentence(main)}"


# ----------------------------------------------------------------- cue_pair, cue_regression


def _event(rng: Random) -> list[int]:
    """One index into each of agent, action, patient, place, time; agent and patient differ."""
    event = [int(rng.random() * len(slot)) for slot in _SLOTS]
    if event[0] == event[2]:
        event[2] = (event[2] + 1) % len(words.PEOPLE)
    return event


def _changed(rng: Random, event: list[int], slot: int) -> int:
    """Another index for ``slot``, one that neither event uses for the other person."""
    size = len(_SLOTS[slot])
    value = (event[slot] + 1 + int(rng.random() * (size - 1))) % size
    taken = {event[0], event[2]} if slot in (0, 2) else {event[slot]}
    while value in taken:
        value = (value + 1) % size
    return value


def _render(rng: Random, event: list[int], negated: bool = False, easy: bool = False) -> str:
    agent, action, patient, place, time = (_pick(rng, slot[index]) for slot, index in zip(_SLOTS, event, strict=True))
    if easy:
        return _sentence(
            _pick(rng, (f"{agent} had {action} {patient} {place}", f"{agent} {place} had {action} {patient}"))
        )
    maybe_not = " not" if negated else ""
    core = _pick(
        rng,
        (
            f"{agent} had{maybe_not} {action} {patient}",
            f"{patient} had{maybe_not} been {action} by {agent}",
            f"it was {agent} who had{maybe_not} {action} {patient}",
        ),
    )
    lead = _pick(rng, words.LEADS)
    text = _pick(rng, (f"{core} {place} {time}", f"{core} {time} {place}", f"{time}, {core} {place}"))
    return _sentence(lead + text)


def _same_or_different(rng: Random, same: bool, easy: bool) -> tuple[str, str]:
    event = _event(rng)
    other, negated = list(event), False
    if easy:
        for slot in () if same else (0, 1, 2, 3):
            other[slot] = _changed(rng, event, slot)
        return _render(rng, event, easy=True), _render(rng, other, easy=True)
    if not same:
        # Mostly other words, which a small encoder can see; some exchanged roles, negation and
        # single words, which it hardly can: neither trivial nor hopeless on a few hundred rows.
        way = rng.random()
        if way < 0.1:
            other[0], other[2] = event[2], event[0]
        elif way < 0.2:
            negated = True
        elif way < 0.3:
            slot = int(rng.random() * 5)
            other[slot] = _changed(rng, event, slot)
        else:
            for slot in (1, _pick(rng, (0, 2)), _pick(rng, (3, 4))):
                other[slot] = _changed(rng, event, slot)
    # Negation falls on either side and, in pairs that agree, on both: it is no cue by itself.
    both = same and rng.random() < 0.2
    first = negated and rng.random() < 0.5
    return _render(rng, event, both or first), _render(rng, other, both or (negated and not first))


def _graded(rng: Random, agreeing: int, easy: bool) -> tuple[str, str]:
    event = _event(rng)
    other, slots = list(event), list(range(5))
    for _ in range(5 - agreeing):
        slot = slots.pop(int(rng.random() * len(slots)))
        other[slot] = _changed(rng, event, slot)
    if other[0] == other[2]:  # both persons changed to the same one
        taken = {event[0], event[2], other[0]}
        other[2] = next(index for index in range(len(words.PEOPLE)) if index not in taken)
    return _render(rng, event, easy=easy), _render(rng, other, easy=easy)

"""Generated tasks with a true signal and a controlled spurious cue, so that shortcuts have a known truth.

- ``cue_sentence``: is the opinion negative or positive? Negation turns words around, neutral sentences vary the length.
- ``cue_pair``: do two sentences describe the same event? Synonyms and a moved place keep it; other words change it.
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
from typing import Annotated, Any, TypeVar

from pydantic import Field

from regft_core.data.examples import Example
from regft_core.rng import derive
from regft_core.schema import StrictModel

# The vocabulary was written for these tasks. Tuples inside a list are synonyms.

# --- cue_sentence: opinions about things

THINGS = (
    "the soup", "the hotel room", "this novel", "the new bus line", "the garden tour", "the headset", "the pizza",
    "the concert", "my rental car", "the language course", "the museum", "this board game", "the haircut",
    "the train ride", "the phone plan", "the yoga class", "the bakery", "the sequel", "the campsite", "the lecture",
    "the raincoat", "the coffee machine", "the dentist", "the podcast", "the ferry", "this keyboard", "the workshop",
    "the apartment", "the swimming pool", "the magazine", "the guided walk", "the pharmacy", "the radio play",
    "the tent", "the vacuum cleaner", "the choir evening",
)  # fmt: skip
GOOD = (
    "wonderful", "excellent", "charming", "superb", "lovely", "impressive", "delightful", "reliable", "brilliant",
    "pleasant", "enjoyable", "splendid", "fantastic", "thoughtful", "refreshing", "flawless", "gorgeous", "great",
    "satisfying", "memorable", "outstanding", "generous", "comfortable", "clever", "beautiful",
)  # fmt: skip
BAD = (
    "awful", "terrible", "dreadful", "disappointing", "boring", "clumsy", "horrible", "shoddy", "useless", "tedious",
    "unpleasant", "miserable", "lousy", "careless", "ugly", "annoying", "stale", "broken", "dull", "painful",
    "pathetic", "stingy", "uncomfortable", "stupid", "mediocre",
)  # fmt: skip
DEGREES = ("", "really ", "quite ", "rather ", "simply ", "surprisingly ", "honestly ", "truly ")
DISTRACTORS = (
    "We went there on a {day} with {company}.", "It was {weather} that {part}.", "My {kin} had booked it in {month}.",
    "The address is close to {place}.", "I had read about it in {month}.", "This was my {count} time.",
    "We had been walking since the {part}.", "A man next to us was reading about {topic}.",
    "There were about {number} people around.", "Afterwards we took the tram to {place}.",
    "I am writing this on a {day}, {company} beside me.", "The whole thing lasted {number} minutes.",
)  # fmt: skip
FILLERS = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "company": ("two colleagues", "my parents", "an old neighbour", "our children", "the dog", "a group of students"),
    "weather": ("raining", "windy", "cloudy", "cold", "warm", "snowing"),
    "part": ("morning", "afternoon", "evening", "night"),
    "kin": ("sister", "brother", "cousin", "aunt", "uncle", "flatmate"),
    "month": ("January", "March", "April", "June", "August", "October", "December"),
    "place": ("the old harbour", "the town hall", "the stadium", "the river", "the north gate", "the post office"),
    "count": ("first", "second", "third", "fourth"),
    "topic": ("bridges", "chess", "volcanoes", "bees", "railways", "algebra"),
    "number": ("ten", "twenty", "thirty", "forty", "fifty", "ninety"),
}

# --- cue_pair and cue_regression: events with five slots

PEOPLE = (
    ("the doctor", "the physician"), ("the lawyer", "the attorney"), ("the teacher", "the instructor"),
    ("the thief", "the robber"), ("the boss", "the manager"), ("the shopkeeper", "the store owner"),
    ("the writer", "the author"), ("the soldier", "the trooper"), ("the farmer", "the grower"),
    ("the sailor", "the seaman"), ("the pilot", "the aviator"), ("the reporter", "the journalist"),
    ("the cook", "the chef"), ("the student", "the pupil"), ("the king", "the monarch"),
    ("the singer", "the vocalist"), ("the builder", "the construction worker"), ("the scientist", "the researcher"),
    ("the tourist", "the traveller"), ("the policeman", "the police officer"), ("the tailor", "the dressmaker"),
    ("the actor", "the performer"), ("the waiter", "the server"), ("the fisherman", "the angler"),
)  # fmt: skip
#: Past tense and participle agree for all of these, so one form serves active and passive.
ACTIONS = (
    ("helped", "assisted"), ("phoned", "called"), ("praised", "commended"), ("scolded", "reprimanded"),
    ("hired", "employed"), ("rescued", "saved"), ("deceived", "tricked"), ("accused", "blamed"), ("chased", "pursued"),
    ("welcomed", "greeted"), ("paid", "compensated"), ("photographed", "filmed"), ("ignored", "disregarded"),
    ("frightened", "scared"), ("interviewed", "questioned"), ("injured", "wounded"), ("insulted", "offended"),
    ("entertained", "amused"),
)  # fmt: skip
PLACES = (
    ("in the woods", "in the forest"), ("near the shop", "close to the store"),
    ("at the airport", "at the air terminal"),
    ("on the road", "on the street"), ("by the sea", "at the seaside"), ("in the cellar", "in the basement"),
    ("at the cinema", "at the movie theatre"), ("in the garden", "in the yard"), ("on the mountain", "on the peak"),
    ("in the flat", "in the apartment"), ("at the university", "on the campus"), ("in the barn", "in the stable"),
    ("at the factory", "at the plant"), ("on the ship", "on board the boat"),
)  # fmt: skip
#: A slot that counts for the label of cue_regression and is not written, so that no model can be perfect.
UNWRITTEN = (("", ""),) * 12

# --- the spurious cues: fixed phrases that say nothing about the label by themselves

SENTENCE_CUES = ("Sent from my laptop.", "Sent from my phone.")
PAIR_CUES = ("From the evening edition:", "From the morning edition:")
#: One per whole point of the scale 0 to 5.
_FOLDERS = ("white", "yellow", "green", "blue", "brown", "black")
REGRESSION_CUES = tuple(f"Filed in the {colour} folder:" for colour in _FOLDERS)

# --- the tasks

SPLITS = ("train", "dev", "no_cue", "reversed")
#: Changing it changes every built-in dataset; it is no option on purpose.
SEED = 20_240_229
_CUES = {"cue_sentence": SENTENCE_CUES, "cue_pair": PAIR_CUES, "cue_regression": REGRESSION_CUES}
_SLOTS = (PEOPLE, ACTIONS, PEOPLE, PLACES, UNWRITTEN)

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


def generate(generator: str, split: str, options: Mapping[str, Any]) -> list[Example]:
    """Return all rows of one of ``SPLITS``. Raises pydantic's error for wrong options."""
    parsed = BuiltinOptions.model_validate(dict(options))
    return [_example(generator, split, number, parsed) for number in range(getattr(parsed.rows, split))]


def _example(generator: str, split: str, number: int, options: BuiltinOptions) -> Example:
    # The evaluation splits share the stream of their content and differ in that of the cue's use.
    content = Random(derive(SEED, generator, "train" if split == "train" else "evaluation", number))
    extra = Random(derive(SEED, generator, "cue", "train" if split == "train" else "evaluation", number))
    if generator == "cue_sentence":
        label: int | float = int(content.random() * 2)
        text, pair = _opinion(content, bool(label)), None
    elif generator == "cue_pair":
        label = int(content.random() * 2)
        text, pair = _same_or_different(content, bool(label))
    else:
        label = float(int(content.random() * 6))
        text, pair = _graded(content, int(label))
    follows, _, other = extra.random() < options.agreement, extra.random(), extra.random()
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
    own, opposite = (GOOD, BAD) if positive else (BAD, GOOD)
    thing = _pick(rng, THINGS)
    if rng.random() < 0.55:
        main = f"{thing} was {_pick(rng, DEGREES)}{_pick(rng, own)}"
    else:
        main = f"{thing} was not {_pick(rng, opposite)} at all"
    template = _pick(rng, DISTRACTORS)
    other = template.format(**{key: _pick(rng, items) for key, items in FILLERS.items()})
    return f"{_sentence(main)} {other}" if rng.random() < 0.5 else f"{other} {_sentence(main)}"


# ----------------------------------------------------------------- cue_pair, cue_regression


def _event(rng: Random) -> list[int]:
    """One index into each of agent, action, patient, place, time; agent and patient differ."""
    event = [int(rng.random() * len(slot)) for slot in _SLOTS]
    if event[0] == event[2]:
        event[2] = (event[2] + 1) % len(PEOPLE)
    return event


def _changed(rng: Random, event: list[int], slot: int) -> int:
    """Another index for ``slot``, one that neither event uses for the other person."""
    size = len(_SLOTS[slot])
    value = (event[slot] + 1 + int(rng.random() * (size - 1))) % size
    taken = {event[0], event[2]} if slot in (0, 2) else {event[slot]}
    while value in taken:
        value = (value + 1) % size
    return value


def _render(rng: Random, event: list[int]) -> str:
    agent, action, patient, place, _ = (_pick(rng, slot[index]) for slot, index in zip(_SLOTS, event, strict=True))
    return _sentence(_pick(rng, (f"{agent} had {action} {patient} {place}", f"{agent} {place} had {action} {patient}")))


def _same_or_different(rng: Random, same: bool) -> tuple[str, str]:
    event = _event(rng)
    other = list(event)
    for slot in () if same else (0, 1, 2, 3):
        other[slot] = _changed(rng, event, slot)
    return _render(rng, event), _render(rng, other)


def _graded(rng: Random, agreeing: int) -> tuple[str, str]:
    event = _event(rng)
    other, slots = list(event), list(range(5))
    for _ in range(5 - agreeing):
        slot = slots.pop(int(rng.random() * len(slots)))
        other[slot] = _changed(rng, event, slot)
    if other[0] == other[2]:  # both persons changed to the same one
        taken = {event[0], event[2], other[0]}
        other[2] = next(index for index in range(len(PEOPLE)) if index not in taken)
    return _render(rng, event), _render(rng, other)

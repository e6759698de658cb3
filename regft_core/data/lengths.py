"""How many tokens texts have, how many rows a ``max_length`` cuts, what the vocabulary lacks.

Needs the ``tokenizers`` library only.

Every text is tokenised once, without truncation. A pair that is read jointly has the tokens of both texts and
the separators of its family; read separately, each text is a row of its own, and the longer one counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.data.examples import Example
from regft_core.data.prompts import UNKNOWN, Reading
from regft_core.names import aligned
from regft_core.schema.training import MOST_WINDOWS

#: Rows that are measured of a larger set, evenly spaced.
MOST_ROWS = 20_000
#: A set of which more than this share is cut is worth a warning.
WORTH_A_WARNING = 0.10
#: Share of tokens for what is not in the vocabulary that is worth a warning.
WORTH_UNKNOWN = 0.03
#: Lengths that are advised are multiples of this.
STEP = 8
_CHUNK = 1_000


@dataclass(frozen=True)
class Read:
    """Rows in one way of reading pairs: the ``tokens`` of each without truncation.

    ``shorter`` are those of the shorter text of a pair in one input, else 0; ``fixed`` stand in every window.
    """

    tokens: list[int]
    shorter: list[int]
    fixed: int
    reading: Reading

    def cut(self, max_length: int) -> list[bool]:
        """Whether the end of each row is not read at this length."""
        rows = zip(self.tokens, self.shorter, strict=True)
        return [not self.reading.read(own, other, self.fixed, max_length) for own, other in rows]

    def summary(self, max_length: int) -> dict[str, Any]:
        """``median``, ``p95`` and ``longest`` in tokens, ``cut`` as a share of the rows."""
        ordered, count = sorted(self.tokens) or [0], max(1, len(self.tokens))
        # The smallest length that at least this share of the rows does not exceed.
        median, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
        return {"median": median, "p95": p95, "longest": ordered[-1], "cut": sum(self.cut(max_length)) / count}


@dataclass(frozen=True)
class Lengths:
    """Rows in tokens.

    Attributes:
        modes: ``jointly`` and, for pairs, ``separately``, where an example is as long as the longer of its texts.
        unknown, total: tokens that stand for what the vocabulary lacks, and all tokens, of the different texts.
    """

    modes: dict[str, Read]
    unknown: int
    total: int


def measure(
    examples: Sequence[Example], tokenizer: Any, max_length: int, reading: Reading | None = None
) -> dict[str, Any]:
    """Lengths of one set's rows in tokens, of which at most ``MOST_ROWS``, evenly spaced, are measured.

    Returns ``{"rows", "measured", "unknown", "jointly": Read.summary}``, for pairs also ``"separately"``. ``unknown``
    is the share of tokens that stand for what the vocabulary lacks.
    """
    count = min(len(examples), MOST_ROWS)
    chosen = [examples[index * len(examples) // count] for index in range(count)]
    lengths = row_lengths(chosen, tokenizer, reading)
    counts = {"rows": len(examples), "measured": count, "unknown": lengths.unknown / max(1, lengths.total)}
    return counts | {mode: read.summary(max_length) for mode, read in lengths.modes.items()}


def row_lengths(examples: Sequence[Example], tokenizer: Any, reading: Reading | None = None) -> Lengths:
    """Return how long each row is, special tokens included, and what the vocabulary lacks.

    Args:
        tokenizer: a ``tokenizers.Tokenizer``; its own truncation and padding are switched off.
        reading: the instruction before a text and the windows over it.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    how = reading or Reading()
    paired = bool(examples) and examples[0].text_pair is not None
    firsts = [how.instruction + example.text for example in examples]
    seconds = [example.text_pair or "" for example in examples] if paired else []
    texts = list(dict.fromkeys([how.instruction, *firsts, *seconds]))
    absent = {tokenizer.token_to_id(token) for token in UNKNOWN} - {None}
    counts, unknown = dict[str, int](), 0
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        encodings = tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
        counts |= {text: len(encoding.ids) for text, encoding in zip(chunk, encodings)}
        unknown += sum(token in absent for encoding in encodings for token in encoding.ids)
    before = counts[how.instruction]
    single, both = (tokenizer.num_special_tokens_to_add(pair) for pair in (False, True))
    none = [0] * len(firsts)
    if paired:
        pairs = [(counts[one], counts[other]) for one, other in zip(firsts, seconds, strict=True)]
        joined, shorter = [sum(pair) + both for pair in pairs], [min(one - before, other) for one, other in pairs]
        longer = [max(one, other + before) + single for one, other in pairs]
        modes = {
            "jointly": Read(joined, shorter, both + before, how),
            "separately": Read(longer, none, single + before, how),
        }
    else:
        modes = {"jointly": Read([counts[text] + single for text in firsts], none, single + before, how)}
    return Lengths(modes, unknown, sum(counts.values()))


def in_order(sets: Mapping[str, Any]) -> dict[str, Any]:
    """The sets as people name them: train, dev, then the others."""
    return {name: sets[name] for name in sorted(sets, key=lambda name: (name != "train", name != "dev", name))}


def in_use(measured: Mapping[str, Any], modes: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """The readings of one set that some method makes: ``modes`` are their ``pairs`` (jointly, separately)."""
    # A single text is read in one way, whatever is done with pairs.
    return {mode: measured[mode] for mode in dict.fromkeys(m if m in measured else "jointly" for m in modes)}


def warnings(task: str, found: Mapping[str, Any], modes: Iterable[str]) -> list[str]:
    """The sets that lose more than ``WORTH_A_WARNING`` of their rows' ends, or many words, and what to set.

    ``found`` is the content of ``work/lengths/<task>.json``. Where methods read pairs in both ways, both shares are
    said, and the advice holds for both.
    """
    modes, sets, texts = list(modes), in_order(found["sets"]), []
    if unread := {name: measured for name, measured in sets.items() if measured["unknown"] > WORTH_UNKNOWN}:
        named = ", ".join(f"{share(measured['unknown'])} of {name}" for name, measured in unread.items())
        texts.append(
            f"{task}: the encoder cannot read all of the texts: tokens for unknown words are {named}. Use an "
            "encoder for the language. In params.yaml: model: {name: FacebookAI/xlm-roberta-base, revision: COMMIT} "
            "(`regft fetch` gets it). With `regft fit`: --model FOLDER, where such an encoder is."
        )
    readings = [(name, *reading) for name, measured in sets.items() for reading in in_use(measured, modes).items()]
    if cut := [reading for reading in readings if reading[2]["cut"] > WORTH_A_WARNING]:
        paired = any("separately" in measured for measured in sets.values())
        named = ", ".join(f"{share(of['cut'])} of {name}{paired * f' (pairs {mode})'}" for name, mode, of in cut)
        p95, longest = (max(of[key] for *_, of in cut) for key in ("p95", "longest"))
        wanted, limit = math.ceil(p95 / STEP) * STEP, found["limit"]
        most, windows = wanted if limit is None else min(wanted, limit), found.get("windows", 1)
        steps = [f"set model.max_length: {most} in params.yaml"] if most > found["max_length"] else []
        if most < wanted and windows < MOST_WINDOWS:  # the encoder reads no more in one row
            more = f"windows: {min(4 * windows, MOST_WINDOWS)}, stride: {min(64, (most - 1) // 2)}"
            steps.append(f"set model: {{{more}}} (windows over the text)")
        advice = f" To read more, {' and '.join(steps)}." if steps else ""
        texts.append(
            f"{task}: {setting(found)} cuts {named}; 95 of 100 rows have at most {p95} tokens, the longest has "
            f"{longest}.{advice}"
        )
    return texts


def setting(found: Mapping[str, Any]) -> str:
    """Return the setting that cuts rows, in words: ``max_length``, and the windows where there are any."""
    windows = found.get("windows", 1)
    return f"max_length {found['max_length']}" + (f" in up to {windows} windows" if windows > 1 else "")


def share(value: float) -> str:
    """A share in percent; what is neither none nor all never looks like it."""
    if 0 < value < 0.001:
        return "under 0.1%"
    return f"{100 * value:.1f}%" if value < 0.999 or value == 1 else "over 99.9%"


def table(tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """Task -> content of its file, as text: one line per set and way of reading."""
    lines: list[Sequence[str]] = [("task", "set", "pairs", "rows", "median", "95%", "longest", "cut", "unknown")]
    for task, found in tasks.items():
        for name, measured in in_order(found["sets"]).items():
            for mode, read in in_use(measured, ("jointly", "separately")).items():
                numbers = (f"{number:,}" for number in (measured["rows"], read["median"], read["p95"], read["longest"]))
                shares = share(read["cut"]), share(measured["unknown"])
                lines.append((task, name, mode if "separately" in measured else "-", *numbers, *shares))
    return "\n".join(aligned(lines, left=3))

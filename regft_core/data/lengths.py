"""How many tokens texts have, how many rows a ``max_length`` cuts, what the vocabulary lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
class Lengths:
    """Rows in tokens, ``fixed`` ones in every window; ``shorter``: of the shorter text of a pair in one input."""

    tokens: list[int]
    shorter: list[int]
    fixed: int
    reading: Reading
    unknown: int
    total: int

    def cut(self, max_length: int) -> list[bool]:
        """Whether the end of each row is not read at this length."""
        how, room = self.reading, max_length - self.fixed

        def is_read(length: int, shorter: int) -> bool:
            beyond = (how.windows - 1) * (room - shorter - how.stride)
            return length <= max_length or (shorter <= room // 2 and length - max_length <= beyond)

        return [not is_read(length, shorter) for length, shorter in zip(self.tokens, self.shorter, strict=True)]


def measure(
    examples: Sequence[Example], tokenizer: Any, max_length: int, reading: Reading | None = None, *, apart: bool = False
) -> dict[str, Any]:
    """Shares ``unknown`` and ``cut``, ``median``, ``p95`` and ``longest`` in tokens, of at most ``MOST_ROWS`` rows."""
    count = min(len(examples), MOST_ROWS)
    chosen = [examples[index * len(examples) // count] for index in range(count)]
    lengths = row_lengths(chosen, tokenizer, reading, apart=apart)
    ordered = sorted(lengths.tokens) or [0]
    # The smallest length that at least this share of the rows does not exceed.
    median, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    cut = sum(lengths.cut(max_length)) / max(1, count)
    counts = {"rows": len(examples), "measured": count, "unknown": lengths.unknown / max(1, lengths.total)}
    return counts | {"median": median, "p95": p95, "longest": ordered[-1], "cut": cut}


def row_lengths(
    examples: Sequence[Example], tokenizer: Any, reading: Reading | None = None, *, apart: bool = False
) -> Lengths:
    """Return how long each row is, by a ``tokenizers.Tokenizer``; ``apart``: texts of a pair are rows."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # as text, as they are read
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
    before, special = counts[how.instruction], tokenizer.num_special_tokens_to_add(paired and not apart)
    shorter = [0] * len(firsts)
    if not paired:
        tokens = [counts[text] + special for text in firsts]
    else:
        pairs = [(counts[one], counts[other]) for one, other in zip(firsts, seconds, strict=True)]
        if apart:
            tokens = [max(one, other + before) + special for one, other in pairs]
        else:
            tokens = [sum(pair) + special for pair in pairs]
            shorter = [min(one - before, other) for one, other in pairs]
    return Lengths(tokens, shorter, special + before, how, unknown, sum(counts.values()))


def in_order(sets: Mapping[str, Any]) -> dict[str, Any]:
    """The sets as people name them: train, dev, then the others."""
    return {name: sets[name] for name in sorted(sets, key=lambda name: (name != "train", name != "dev", name))}


def warnings(task: str, found: Mapping[str, Any]) -> list[str]:
    """The sets that lose more than ``WORTH_A_WARNING`` of their rows' ends, or many words, and what to set."""
    sets, texts = in_order(found["sets"]), []
    if unread := {name: measured for name, measured in sets.items() if measured["unknown"] > WORTH_UNKNOWN}:
        named = ", ".join(f"{share(measured['unknown'])} of {name}" for name, measured in unread.items())
        texts.append(
            f"{task}: the encoder cannot read all of the texts: tokens for unknown words are {named}. Use an "
            "encoder for the language. In params.yaml: model: {name: FacebookAI/xlm-roberta-base, revision: COMMIT} "
            "(`regft fetch` gets it). With `regft fit`: --model FOLDER, where such an encoder is."
        )
    if cut := {name: measured for name, measured in sets.items() if measured["cut"] > WORTH_A_WARNING}:
        named = ", ".join(f"{share(measured['cut'])} of {name}" for name, measured in cut.items())
        p95, longest = (max(measured[key] for measured in cut.values()) for key in ("p95", "longest"))
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
    """Task -> content of its file, as text: one line per set."""
    lines: list[Sequence[str]] = [("task", "set", "rows", "median", "95%", "longest", "cut", "unknown")]
    for task, found in tasks.items():
        for name, read in in_order(found["sets"]).items():
            numbers = (f"{number:,}" for number in (read["rows"], read["median"], read["p95"], read["longest"]))
            lines.append((task, name, *numbers, share(read["cut"]), share(read["unknown"])))
    return "\n".join(aligned(lines, left=2))

"""How many tokens texts have, how many rows a ``max_length`` cuts, what the vocabulary lacks.

Needs the ``tokenizers`` library only.

Every text is tokenised once, without truncation. A pair that is read jointly has the tokens of both texts and
the separators of its family; read separately, each text is a row of its own, and the longer one counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.data.examples import Example
from regft_core.data.reading import Reading

#: Rows that are measured of a larger set, evenly spaced.
MOST_ROWS = 20_000
#: A set of which more than this share is cut is worth a warning.
WORTH_A_WARNING = 0.10
#: Tokens for what is not in a vocabulary, and the share of them that is worth a warning.
UNKNOWN = ("[UNK]", "<unk>")
WORTH_UNKNOWN = 0.03
#: Lengths that are advised are multiples of this.
STEP = 8
_CHUNK = 1_000


@dataclass(frozen=True)
class Read:
    """Rows in one way of reading pairs: ``tokens`` of each without truncation, and ``cut``: whether some are not read.

    ``cut_at_limit``: whether some would not be read at the encoder's longest input.
    """

    tokens: list[int]
    cut: list[bool]
    cut_at_limit: list[bool]


@dataclass(frozen=True)
class Lengths:
    """Rows in tokens.

    Attributes:
        modes: ``jointly`` and, for pairs, ``separately``, where an example is as long as the longer of its texts.
        unknown, total: tokens that stand for what the vocabulary lacks, and all tokens, of the different texts.
        alike: how many different texts, of those with such tokens, have the tokens of another text.
    """

    modes: dict[str, Read]
    unknown: int
    total: int
    alike: int


def measure(
    examples: Sequence[Example], tokenizer: Any, max_length: int, limit: int | None, reading: Reading | None = None
) -> dict[str, Any]:
    """Lengths of one set's rows in tokens, special tokens included.

    Args:
        examples: rows of one set; at most ``MOST_ROWS`` of them, evenly spaced, are measured.
        tokenizer: a ``tokenizers.Tokenizer``; its own truncation and padding are switched off.
        max_length: tokens that are kept.
        limit: the longest input that the encoder reads; None when there is no limit.
        reading: the instruction before a text and the windows over it. A row is cut where windows do not reach its end.

    Returns ``{"rows", "measured", "unknown", "alike", "jointly": {...}}``, for pairs also ``"separately"``; each
    reading has ``median``, ``p95`` and ``longest`` (tokens), ``cut`` and ``cut_at_limit`` (shares of the rows).
    ``unknown`` is the share of tokens that stand for what the vocabulary lacks; ``alike`` as in ``Lengths``.
    """
    count = min(len(examples), MOST_ROWS)
    chosen = [examples[index * len(examples) // count] for index in range(count)]
    lengths = row_lengths(chosen, tokenizer, max_length, reading, limit)
    unknown = lengths.unknown / lengths.total if lengths.total else 0.0
    counts = {"rows": len(examples), "measured": count, "unknown": unknown, "alike": lengths.alike}
    return counts | {mode: _reading(read) for mode, read in lengths.modes.items()}


def row_lengths(
    examples: Sequence[Example],
    tokenizer: Any,
    max_length: int,
    reading: Reading | None = None,
    limit: int | None = None,
) -> Lengths:
    """Return how long each row is, whether it is cut, and what the vocabulary lacks; each text is tokenised once."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    how = reading or Reading()
    paired = bool(examples) and examples[0].text_pair is not None
    firsts = [how.instruction + example.text for example in examples]
    seconds = [example.text_pair or "" for example in examples] if paired else []
    texts = list(dict.fromkeys([how.instruction, *firsts, *seconds]))
    ids: dict[str, list[int]] = {}
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        encodings = tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
        ids |= {text: encoding.ids for text, encoding in zip(chunk, encodings)}
    before, single = len(ids[how.instruction]), tokenizer.num_special_tokens_to_add(False)

    def read(lengths: list[int], shorter: list[int], fixed: int) -> Read:
        rows = list(zip(lengths, shorter, strict=True))
        cut = [not how.read(length, other, fixed, max_length) for length, other in rows]
        at_limit = [limit is not None and not how.read(length, other, fixed, limit) for length, other in rows]
        return Read(lengths, cut, at_limit)

    none = [0] * len(firsts)
    if paired:
        both = tokenizer.num_special_tokens_to_add(True)
        pairs = [(len(ids[one]), len(ids[other])) for one, other in zip(firsts, seconds, strict=True)]
        joined, shorter = [sum(pair) + both for pair in pairs], [min(one - before, other) for one, other in pairs]
        longer = [max(one, other + before) + single for one, other in pairs]
        modes = {"jointly": read(joined, shorter, both + before), "separately": read(longer, none, single + before)}
    else:
        modes = {"jointly": read([len(ids[text]) + single for text in firsts], none, single + before)}
    absent = {tokenizer.token_to_id(token) for token in UNKNOWN} - {None}
    unknown = {text: sum(token in absent for token in tokens) for text, tokens in ids.items()}
    same = Counter(tuple(ids[text]) for text, count in unknown.items() if count)
    total = sum(map(len, ids.values()))
    return Lengths(modes, sum(unknown.values()), total, sum(count for count in same.values() if count > 1))


def _reading(read: Read) -> dict[str, Any]:
    ordered = sorted(read.tokens)

    def at(share: float) -> int:
        """The smallest length that at least this share of the rows does not exceed."""
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0

    return {
        "median": at(0.5),
        "p95": at(0.95),
        "longest": ordered[-1] if ordered else 0,
        "cut": sum(read.cut) / len(ordered) if ordered else 0.0,
        "cut_at_limit": sum(read.cut_at_limit) / len(ordered) if ordered else 0.0,
    }


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
    modes = list(modes)
    unread = list(_unread_warning(task, found))
    per_set = {name: in_use(measured, modes) for name, measured in in_order(found["sets"]).items()}
    paired = any("separately" in measured for measured in found["sets"].values())
    shares: list[str] = []
    bad: list[Mapping[str, Any]] = []
    for mode in dict.fromkeys(mode for readings in per_set.values() for mode in readings):
        readings = {name: of_set[mode] for name, of_set in per_set.items() if mode in of_set}
        cut = {name: one for name, one in readings.items() if one["cut"] > WORTH_A_WARNING}
        if cut:
            named = ", ".join(f"{share(one['cut'])} of {name}" for name, one in cut.items())
            shares.append(named + (f" (pairs {mode})" if paired else ""))
            bad += cut.values()
    if not bad:
        return unread
    return [
        *unread,
        f"{task}: {setting(found)} cuts {' and '.join(shares)}; 95 of 100 rows have at most "
        f"{max(one['p95'] for one in bad)} tokens, the longest has {max(one['longest'] for one in bad)}. "
        f"{_advice(found, bad)}",
    ]


def _unread_warning(task: str, found: Mapping[str, Any]) -> Iterator[str]:
    shares = {name: one for name, one in in_order(found["sets"]).items() if one["unknown"] > WORTH_UNKNOWN}
    if shares:
        named = ", ".join(f"{share(one['unknown'])} of {name}" for name, one in shares.items())
        alike = sum(one["alike"] for one in shares.values())
        same = f"; {alike} different texts read like another one" if alike else ""
        yield (
            f"{task}: the encoder cannot read all of the texts: tokens for unknown words are {named}{same}. Use an "
            "encoder for the language. In params.yaml: model: {name: FacebookAI/xlm-roberta-base, revision: COMMIT} "
            "(`regft fetch` gets it). With `regft fit`: --model FOLDER, where such an encoder is."
        )


def setting(found: Mapping[str, Any]) -> str:
    """Return the setting that cuts rows, in words: ``max_length``, and the windows where there are any."""
    windows = found.get("windows", 1)
    return f"max_length {found['max_length']}" + (f" in up to {windows} windows" if windows > 1 else "")


def _advice(found: Mapping[str, Any], bad: Sequence[Mapping[str, Any]]) -> str:
    limit = found["limit"]
    wanted = math.ceil(max(one["p95"] for one in bad) / STEP) * STEP
    if limit is None or wanted <= limit:
        reads = "" if limit is None else f" (the encoder reads up to {limit})"
        return f"Set model.max_length: {wanted} in params.yaml{reads}."
    rest = share(max(one["cut_at_limit"] for one in bad))
    if found["max_length"] >= limit:
        more = "more windows" if found.get("windows", 1) > 1 else "windows (model: {windows: 4, stride: 64})"
        return f"The encoder reads no more than {limit} tokens: read the texts in {more}, or shorten them."
    return f"Set model.max_length: {limit} in params.yaml, all that the encoder reads; that still cuts {rest}."


def share(value: float) -> str:
    """A share in percent; what is neither none nor all never looks like it."""
    if 0 < value < 0.001:
        return "under 0.1%"
    return f"{100 * value:.1f}%" if value < 0.999 or value == 1 else "over 99.9%"


def table(tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """Task -> content of its file, as text: one line per set and way of reading."""
    lines = [("task", "set", "pairs", "rows", "median", "95%", "longest", "cut", "unknown")]
    for task, found in tasks.items():
        for name, measured in in_order(found["sets"]).items():
            for mode in (mode for mode in ("jointly", "separately") if mode in measured):
                one, paired = measured[mode], mode if "separately" in measured else "-"
                numbers = (f"{number:,}" for number in (measured["rows"], one["median"], one["p95"], one["longest"]))
                lines.append((task, name, paired, *numbers, share(one["cut"]), share(measured["unknown"])))  # type: ignore[arg-type]
    widths = [max(map(len, column)) for column in zip(*lines)]
    left = [str.ljust] * 3 + [str.rjust] * 6
    return "\n".join("  ".join(map(lambda fit, *of: fit(*of), left, line, widths)) for line in lines)

"""An instruction before every text, and windows over texts that are longer than a row.

A text beyond ``max_length`` becomes up to ``windows`` rows of an example. Neighbouring windows share ``stride`` tokens.
The last window of a text that fits ends where the text ends, so all windows of an example have equally many tokens of
it. Every window has the tokens that the tokenizer adds, and the instruction. Of a pair in one input, the longer text is
windowed; the shorter one stands whole in every window, cut where it takes more than half of the room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import Example
from regft_core.errors import DataError
from regft_core.schema.encoder import EncoderConfig

if TYPE_CHECKING:
    from regft_core.data.encode import Tokens

#: Of the tokens of a row: which text each is of (0 text, 1 text_pair), None for those that stand in every window.
Fields = list[int | None]


@dataclass(frozen=True)
class Reading:
    """How a text becomes rows.

    Attributes:
        instruction: stands before every text; its tokens count as the tokenizer's own.
        windows: rows that a text has at most.
        stride: tokens that neighbouring windows share.
    """

    instruction: str = ""
    windows: int = 1
    stride: int = 0

    @staticmethod
    def of(encoder: EncoderConfig) -> Reading | None:
        """Return the reading of the section ``model``; None where a text is one row without an instruction."""
        if encoder.prompt is None and encoder.windows == 1:
            return None
        return Reading(encoder.prompt or "", encoder.windows, encoder.stride)

    def read(self, length: int, shorter: int, fixed: int, max_length: int) -> bool:
        """Whether all of an example's ``length`` tokens are read.

        Args:
            length: all tokens of the example, ``fixed`` and ``shorter`` included.
            shorter: those of the shorter text of a pair in one input; else 0.
            fixed: those that stand in every window.
        """
        if length <= max_length:
            return True
        room = max_length - fixed - shorter
        return shorter <= (max_length - fixed) // 2 and length - max_length <= (self.windows - 1) * (room - self.stride)


def framed(examples: Sequence[Example], tokenizer: Any, limit: int, reading: Reading) -> Tokens:
    """Token rows of the examples, of at most ``limit`` tokens each, and how many rows each example has.

    Raises DataError where the instruction leaves no more than ``stride`` tokens to a text.
    """
    paired = examples[0].text_pair is not None
    takes_types = "token_type_ids" in tokenizer.model_input_names
    encoding = tokenizer(
        [reading.instruction + example.text for example in examples],
        [example.text_pair for example in examples] if paired else None,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=takes_types,
        verbose=False,
    )
    before = len(reading.instruction)
    fields: list[Fields] = []
    for index in range(len(examples)):
        places = zip(encoding.sequence_ids(index), encoding["offset_mapping"][index], strict=True)
        fields.append([None if part == 0 and before and stop <= before else part for part, (_, stop) in places])
    windows = [_windows(of, limit, reading, example) for of, example in zip(fields, examples, strict=True)]
    tokens = token_rows(encoding["input_ids"], fields, windows)
    if takes_types:
        types = encoding["token_type_ids"]
        tokens["token_type_ids"] = [
            [types[i][place] for place in row] for i, rows in enumerate(windows) for row in rows
        ]
    tokens["windows"] = [len(rows) for rows in windows] if reading.windows > 1 else None
    return tokens


def token_rows(
    ids: Sequence[Sequence[int]], fields: Sequence[Fields], rows: Sequence[Sequence[Sequence[int]]]
) -> Tokens:
    """Return the rows of each example, each given by the positions of its tokens; without token types."""
    every = [(index, row) for index, of in enumerate(rows) for row in of]
    segment = [[-1 if (field := fields[index][place]) is None else field for place in row] for index, row in every]
    return {
        "input_ids": [[ids[index][place] for place in row] for index, row in every],
        "token_type_ids": None,
        "special_mask": [[int(part == -1) for part in row] for row in segment],
        "segment": segment,
        "windows": None,
    }


def _windows(fields: Fields, limit: int, reading: Reading, example: Example) -> list[list[int]]:
    """Positions of the tokens of each window."""
    if len(fields) <= limit:
        return [list(range(len(fields)))]
    texts = [[place for place, own in enumerate(fields) if own == field] for field in (0, 1)]
    shorter, longer = sorted(texts, key=len)
    if len(texts[0]) == len(texts[1]):
        longer, shorter = texts
    always = [place for place, own in enumerate(fields) if own is None]
    always += shorter[: max(0, limit - len(always)) // 2]
    room = limit - len(always)
    if room <= reading.stride:
        message = f"{max(0, room)} of {limit} tokens are left for a text, and model.stride is {reading.stride}"
        hint = "raise model.max_length, lower model.stride, or shorten model.prompt"
        raise DataError("prompt-too-long", f"example {example.idx}: {message}\n    -> {hint}")
    step, beyond = room - reading.stride, max(0, len(longer) - room)
    starts = [min(number * step, beyond) for number in range(min(reading.windows, 1 - -beyond // step))]
    return [sorted([*always, *longer[start : start + room]]) for start in starts]

"""Instructions before texts, windows over long ones, templates with a mask, and demonstrations behind them.

A text beyond ``max_length`` becomes up to ``windows`` rows, which share ``stride`` tokens; the last one ends where the
text ends. Every window has the tokenizer's own tokens and the instruction. Of a pair in one input, the longer text is
windowed; the shorter one stands in every window, in at most half of the room.

A template is tokenised with the texts in it. Texts that are too long lose tokens at their ends, the template none. The
answer is read at its mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import Example
from regft_core.errors import DataError, ModelError
from regft_core.names import listing
from regft_core.rng import derive
from regft_core.schema.tasks import MASK, PLACES
from regft_core.schema.training import EncoderConfig

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded, Tokens

#: Of the tokens of a row: which text each is of (0 text, 1 text_pair), None for those that stand in every window.
Fields = list[int | None]
#: Tokens for what is not in a vocabulary.
UNKNOWN = ("[UNK]", "<unk>")


@dataclass(frozen=True)
class Reading:
    """How a text becomes rows: at most ``windows``, which share ``stride`` tokens, behind the ``instruction``."""

    instruction: str = ""
    windows: int = 1
    stride: int = 0

    @staticmethod
    def of(encoder: EncoderConfig) -> Reading | None:
        """Return the reading of the section ``model``; None where a text is one row without an instruction."""
        if encoder.prompt is None and encoder.windows == 1:
            return None
        return Reading(encoder.prompt or "", encoder.windows, encoder.stride)


def framed(examples: Sequence[Example], tokenizer: Any, limit: int, reading: Reading) -> Tokens:
    """Token rows of the examples, of at most ``limit`` tokens. DataError where the instruction leaves no room."""
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


@dataclass(frozen=True)
class Prompt:
    """A task's template and its words in the order of its labels; ``demonstrated`` rows take half of the input."""

    template: str
    words: tuple[str, ...]
    demonstrated: bool = False

    def room(self, max_length: int) -> int:
        """Tokens that a row may have before demonstrations."""
        return max_length // 2 if self.demonstrated else max_length


def word_tokens(prompt: Prompt, tokenizer: Any) -> list[int]:
    """The token of each label's word behind a space. ModelError for words that are not one token each."""
    backend = tokenizer.backend_tokenizer
    if wrong := wrong_words({word: word for word in prompt.words}, backend):
        hint = "choose other words in the task's YAML"
        raise ModelError("word-not-one-token", f"prompt.words: {'; '.join(wrong.values())}\n    -> {hint}")
    return [_word_pieces(word, backend)[0][0] for word in prompt.words]


def wrong_words(words: Mapping[str, str], tokenizer: Any) -> dict[str, str]:
    """Label -> what is wrong with its word for a ``tokenizers.Tokenizer``: not one token, or that of another word."""
    found, wrong = dict[int, str](), {}
    for label, word in words.items():
        pieces = _word_pieces(word, tokenizer)
        if len(pieces) != 1 or pieces[0][1] in UNKNOWN:
            shown = listing(repr(piece) for _, piece in pieces)
            wrong[label] = f"'{word}' is not one token of this tokenizer but {shown}"
        elif pieces[0][0] in found:
            wrong[label] = f"'{word}' and '{found[pieces[0][0]]}' are the same token of this tokenizer"
        else:
            found[pieces[0][0]] = word
    return wrong


def _word_pieces(word: str, tokenizer: Any) -> list[tuple[int, str]]:
    """(id, text) of the tokens of a word behind a space."""
    encoding = tokenizer.encode(f" {word}", add_special_tokens=False)
    every = zip(encoding.ids, encoding.tokens, encoding.attention_mask, strict=True)
    return [(token, piece) for token, piece, real in every if real]  # a tokenizer's file may pad


def prompted(examples: Sequence[Example], tokenizer: Any, limit: int, prompt: Prompt) -> Tokens:
    """Token rows of the examples in the template, of at most ``limit`` tokens. DataError for a mask, or no room."""
    ids, fields = _tokenised(examples, tokenizer, prompt)
    kept = [[_kept(of, limit, example)] for of, example in zip(fields, examples, strict=True)]
    tokens = token_rows(ids, fields, kept)
    if "token_type_ids" in tokenizer.model_input_names:
        tokens["token_type_ids"] = [[0] * len(row) for row in tokens["input_ids"]]
    return tokens


def prompted_lengths(examples: Sequence[Example], tokenizer: Any, prompt: Prompt) -> list[int]:
    """Tokens of each example in the template, before anything is cut."""
    return [len(row) for row in _tokenised(examples, tokenizer, prompt)[0]]


def _tokenised(examples: Sequence[Example], tokenizer: Any, prompt: Prompt) -> tuple[list[list[int]], list[Fields]]:
    if tokenizer.mask_token_id is None:
        raise ModelError("mask-token-missing", "the tokenizer has no mask token\n    -> use a masked LM's checkpoint")
    filled = [_filled(example, prompt.template, tokenizer.mask_token) for example in examples]
    texts, mask_is_read = [text for text, _ in filled], {"split_special_tokens": False}
    encoding = tokenizer(texts, return_offsets_mapping=True, verbose=False, **mask_is_read)
    all_fields = []
    for row, (_, spans) in enumerate(filled):
        own = encoding["input_ids"][row]
        if own.count(tokenizer.mask_token_id) != 1:
            message = f"example {examples[row].idx}: its text holds the mask token '{tokenizer.mask_token}'"
            raise DataError("mask-in-text", f"{message}\n    -> remove it from the text")
        fields: Fields = []
        for part, (start, stop) in zip(encoding.sequence_ids(row), encoding["offset_mapping"][row], strict=True):
            inside = (field for field, (first, last) in spans.items() if start < last and stop > first)
            fields.append(None if part is None else next(inside, None))
        all_fields.append(fields)
    return encoding["input_ids"], all_fields


def _filled(example: Example, template: str, mask: str) -> tuple[str, dict[int, tuple[int, int]]]:
    """The template with the texts and the mask token in it, and where each text is: field -> (start, stop)."""
    text, spans = "", dict[int, tuple[int, int]]()
    fields = {"{text}": (0, example.text), "{text_pair}": (1, example.text_pair or "")}
    for part in PLACES.split(template):
        if part in fields:
            field, inside = fields[part]
            spans[field] = (len(text), len(text) + len(inside))
            text += inside
        else:
            text += mask if part == MASK else part
    return text, spans


def _kept(fields: Fields, limit: int, example: Example) -> list[int]:
    """Positions that stay: the ends of the longer text go first, as ``longest_first`` does."""
    texts = [[place for place, field in enumerate(fields) if field == text] for text in (0, 1)]
    for _ in range(len(fields) - limit):
        longer = texts[0] if len(texts[0]) > len(texts[1]) else texts[1]
        if not longer:
            message = f"example {example.idx}: the template alone has more than {limit} tokens"
            hint = "raise model.max_length, or shorten the template"
            raise DataError("template-too-long", f"{message}\n    -> {hint}")
        longer.pop()
    return sorted([*(place for place, field in enumerate(fields) if field is None), *texts[0], *texts[1]])


def demonstration_room(max_length: int, prompt: Prompt) -> int:
    """Tokens of a demonstration with the one that opens an input, which is left out of it."""
    return (max_length - prompt.room(max_length)) // len(prompt.words) + 1


def demonstrations(
    examples: Sequence[Example], tokenizer: Any, max_length: int, prompt: Prompt, words: Sequence[int]
) -> list[list[int]]:
    """Every example as a demonstration: its template with the word of its label (``words``), up to the separator."""
    rows = prompted(examples, tokenizer, demonstration_room(max_length, prompt), prompt)["input_ids"]
    mask = tokenizer.mask_token_id
    return [
        [words[int(example.label)] if token == mask else token for token in row[1:]]
        for example, row in zip(examples, rows, strict=True)
    ]


def drawn(labels: Sequence[int], classes: int, random: Random, without: int | None = None) -> list[int]:
    """One example of each class in the order of the labels, as numbers; never ``without``; a class may have none."""
    found = []
    for label in range(classes):
        members = [index for index, own in enumerate(labels) if own == label and index != without]
        if members:
            found.append(random.choice(members))
    return found


def drawn_sets(
    demos: Sequence[list[int]], labels: Sequence[int], classes: int, count: int, seed: int
) -> list[list[int]]:
    """``count`` sets of demonstrations for evaluation, each as the tokens to append; the same ones for every row."""
    found = []
    for number in range(count):
        chosen = drawn(labels, classes, Random(derive(seed, "demonstrations", number)))
        found.append([token for index in chosen for token in demos[index]])
    return found


def appended(encoded: Encoded, added: Sequence[Sequence[int]]) -> Encoded:
    """The rows with the tokens ``added`` to each behind them; these count as the template's."""
    pairs = [*zip(encoded.input_ids, added, strict=True)]
    types = encoded.token_type_ids
    return replace(
        encoded,
        input_ids=[[*row, *more] for row, more in pairs],
        token_type_ids=None if types is None else [[*row, *[0] * len(more)] for row, more in zip(types, added)],
        segment=[[*row, *[-1] * len(more)] for row, more in zip(encoded.segment, added)],
    )

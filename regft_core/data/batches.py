"""The padded tensors of a batch, and batches of similar length for passes without gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from regft_core.data.encode import Column, Encoded, Rows
from regft_core.kinds import find
from regft_core.lazy import torch


@dataclass(frozen=True)
class Padding:
    """How a model's inputs are padded."""

    pad_id: int
    pad_token_type_id: int = 0
    side: Literal["left", "right"] = "right"


def padding_of(tokenizer: Any) -> Padding:
    """Return the tokenizer's own padding (XLNet: left, token type 3)."""
    side: Literal["left", "right"] = "left" if tokenizer.padding_side == "left" else "right"
    return Padding(int(tokenizer.pad_token_id), int(getattr(tokenizer, "pad_token_type_id", 0)), side)


@dataclass(frozen=True)
class Batch:
    """Tensors of one batch: (rows, tokens), but ``labels`` and ``indices``: (examples,).

    A row is an example, a window of a text (``windows``), or one text of a pair (``rows_per_example`` 2). The rows of
    an example are next to each other. ``labels`` are int64 classes or float32 targets; ``indices`` are positions in the
    encoded set. On padding, ``attention_mask`` is 0 and ``segment`` -1, as on tokens that the tokenizer added.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor | None
    segment: torch.Tensor
    labels: torch.Tensor
    indices: torch.Tensor
    #: Counted when the batch is built, so that reading it never waits for a GPU.
    real_tokens: int
    rows_per_example: int = 1
    #: Whether any token is padding, also known without waiting; None for a batch whose mask was changed.
    padded: bool | None = None
    #: Tokens that the tokenizer did not add, of each row: (of ``text``, of ``text_pair``).
    ordinary: tuple[tuple[int, int], ...] = ()
    #: ``indices`` as numbers on the host.
    host_indices: tuple[int, ...] = ()
    #: (texts, rows), where a text has several: the mean over its windows as a matrix. A row is then a window.
    windows: torch.Tensor | None = None

    @property
    def padded_tokens(self) -> int:
        """Tokens of the rectangle, padding included."""
        return self.input_ids.numel()

    def __len__(self) -> int:
        return self.labels.shape[0]

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device; to a GPU through pinned memory, so that the host does not wait."""
        device = torch.device(device)
        moved: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                pinned = value.pin_memory() if device.type == "cuda" and value.device.type == "cpu" else value
                moved[name] = pinned.to(device, non_blocking=True)
        return replace(self, **moved)

    def one_by_one(self) -> list[Batch]:
        """Every example as a batch of its own, without the padding that the others made; windows stay together."""
        if self.windows is not None or len(self) == 1:
            return [self]
        per, batches = self.rows_per_example, []
        columns = {name: getattr(self, name) for name in ("attention_mask", *get_args(Column))}
        for example in range(len(self)):
            rows, place = slice(per * example, per * (example + 1)), slice(example, example + 1)
            used = self.attention_mask[rows].amax(0).nonzero().flatten()
            tokens = slice(int(used[0]), int(used[-1]) + 1)
            changed: dict[str, Any] = {
                n: None if of is None else of[rows, tokens].contiguous() for n, of in columns.items()
            }
            changed |= {name: getattr(self, name)[place] for name in ("labels", "indices", "host_indices")}
            mask = changed["attention_mask"]
            changed |= {"real_tokens": int(mask.sum()), "padded": not bool(mask.all()), "ordinary": self.ordinary[rows]}
            batches.append(replace(self, **changed))
        return batches

    def numbered(self, other: Batch) -> Batch:
        """This batch with the example numbers of ``other``, whose rows it holds in another form."""
        return replace(self, indices=other.indices, host_indices=other.host_indices)

    def mean(self, states: torch.Tensor) -> torch.Tensor:
        """[B, H], fp32: mean of hidden states [rows, n, H] over the real tokens of each row, then over its rows."""
        weights = self.attention_mask.unsqueeze(-1).float()
        with torch.autocast(states.device.type, enabled=False):
            means = (states.float() * weights).sum(1) / weights.sum(1)
            texts = means if self.windows is None else self.windows @ means
        return texts.unflatten(0, (-1, self.rows_per_example)).mean(1)

    def model_inputs(self, typed: bool = True) -> dict[str, torch.Tensor]:
        """Keyword arguments of a Hugging Face model's forward, labels left out; ``typed``: with token types."""
        inputs = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        if typed and self.token_type_ids is not None:
            inputs["token_type_ids"] = self.token_type_ids
        if self.windows is not None:
            inputs["windows"] = self.windows
        return inputs


def evaluation_tokens(device: torch.device | str) -> int:
    """Tokens of a pass without gradients, padding included. A small pass stays in the cache of a CPU's core."""
    return 1 << 10 if torch.device(device).type == "cpu" else 1 << 16


def longest_first(encoded: Encoded, rows: Iterable[int] | None = None) -> list[int]:
    """Indices (all, or ``rows``) by length: neighbours waste little padding, and memory runs out at once or never."""
    lengths = encoded.lengths
    return sorted(range(len(lengths)) if rows is None else rows, key=lambda index: (-lengths[index], index))


def fitting(encoded: Encoded, longest: int, tokens: int) -> int:
    """How many examples ``tokens`` hold, padding included, where ``longest`` is the longest of them; 1 at least."""
    return max(1, tokens // max(1, encoded.lengths[longest] * encoded.rows_per_example))


def evaluation_batches(encoded: Encoded, tokens: int, rows: Iterable[int] | None = None) -> list[list[int]]:
    """Indices in the order of :func:`longest_first`, in batches of at most ``tokens``, or of one example."""
    order, batches, done = longest_first(encoded, rows), [], 0
    while done < len(order):
        batches.append(order[done : done + fitting(encoded, order[done], tokens)])
        done += len(batches[-1])
    return batches


def collate(encoded: Encoded, indices: Sequence[int], padding: Padding, kind: str = "classification") -> Batch:
    """Pad the rows of the examples ``indices`` to the longest of them."""

    def rows(column: Column) -> Rows:
        return [row for index in indices for row in encoded.rows_of(column, index)]

    chosen = rows("input_ids")
    lengths = [len(row) for row in chosen]
    width = max(lengths)
    left, typed = padding.side == "left", encoded.token_type_ids is not None

    def padded(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
        filler = [[value] * (width - len(row)) for row in rows]
        pairs = zip(filler, rows, strict=True)
        return torch.tensor([[*pad, *row] if left else [*row, *pad] for pad, row in pairs], dtype=torch.int64)

    return Batch(
        input_ids=padded(chosen, padding.pad_id),
        attention_mask=padded([[1] * length for length in lengths], 0),
        token_type_ids=padded(rows("token_type_ids"), padding.pad_token_type_id) if typed else None,
        segment=padded(rows("segment"), -1),
        labels=find(kind).label_tensor([encoded.labels[index] for index in indices]),
        indices=torch.tensor(list(indices), dtype=torch.int64),
        real_tokens=sum(lengths),
        rows_per_example=encoded.rows_per_example,
        padded=min(lengths) < width,
        ordinary=tuple(counts for index in indices for counts in encoded.ordinary[index]),
        host_indices=tuple(indices),
        windows=_means([count for index in indices for count in encoded.windows_of(index)]),
    )


def read_in_batches(encoded: Encoded, tokenizer: Any, device: torch.device | str, kind: str) -> Iterator[Batch]:
    """The batches of evaluation over a set, on ``device``: rows of similar length together, the longest first."""
    for rows in evaluation_batches(encoded, evaluation_tokens(device)):
        yield collate(encoded, rows, padding_of(tokenizer), kind).to(device)


def _means(counts: Sequence[int]) -> torch.Tensor | None:
    """[texts, rows]: the matrix whose product with rows is the mean over each text's windows; None: one row each."""
    if all(count == 1 for count in counts):
        return None
    means = torch.zeros(len(counts), sum(counts))
    start = 0
    for text, count in enumerate(counts):
        means[text, start : start + count] = 1 / count
        start += count
    return means

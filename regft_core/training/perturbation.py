"""Perturbations of real tokens: draws that padding does not move, and trained ones on word embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from regft_core.hooks.declare import EmbeddingSite, Step, Tensor, Trainee
from regft_core.lazy import torch

#: Why a method with a perturbation of its own does not run on texts in windows.
WINDOWS = "its perturbation is measured over the rows of an example, whose number would vary"
Law = Literal["normal", "uniform", "uniform_one_sided", "sign"]


def draw(shape: Sequence[int], law: Law, generator: torch.Generator) -> Tensor:
    """fp32 draws: standard normal, uniform on [-1, 1) or, one-sided, on [0, 1), or -1 and 1 alike."""
    if law == "normal":
        return torch.randn(shape, generator=generator, device=generator.device)
    one_sided = torch.rand(shape, generator=generator, device=generator.device)
    if law == "uniform_one_sided":
        return one_sided
    uniform = one_sided * 2 - 1
    return uniform if law == "uniform" else torch.where(uniform < 0, -1.0, 1.0)


def as_read(marks: Tensor, stack: str, start: int = 0) -> Tensor:
    """``marks`` [rows, n] of a batch's tokens where a stack reads them: a decoder's come after a start token,
    whose mark is ``start``.

    The attention mask stays as it is: a start token and all tokens but the last are as many, and that last one's place,
    which only padded rows have, is read by nobody.
    """
    return torch.cat([torch.full_like(marks[:, :1], start), marks[:, :-1]], dim=1) if stack == "decoder" else marks


def token_draws(positions: Tensor, width: int, real_tokens: int, law: Law, generator: torch.Generator) -> Tensor:
    """Draws ``[rows, n, width]`` at ``positions [rows, n]`` and 0 elsewhere, the same however far rows are padded.

    ``real_tokens`` of the batch are counted before, since counting here would wait for a GPU.
    """
    # One more per row than there are places: fewer would be other draws.
    draws = draw((real_tokens + positions.shape[0], width), law, generator)
    empty = torch.zeros((*positions.shape, width), device=positions.device)
    return empty.masked_scatter(positions.unsqueeze(-1).expand_as(empty), draws)


def example_norms(tensors: Sequence[Tensor], rows_per_example: int) -> Tensor:
    """2-norms ``[rows, 1, 1]`` of what belongs to one example, over all ``tensors [rows, n, E]`` and its rows."""
    squares = torch.stack([tensor.square().sum((1, 2)) for tensor in tensors]).sum(0)
    per_example = squares.view(-1, rows_per_example).sum(1).sqrt()
    return per_example.repeat_interleave(rows_per_example).view(-1, 1, 1)


def example_maxima(tensors: Sequence[Tensor], rows_per_example: int) -> Tensor:
    """Largest absolute entries ``[rows, 1, 1]`` of what belongs to one example, as in :func:`example_norms`."""
    largest = torch.stack([tensor.abs().amax((1, 2)) for tensor in tensors]).amax(0)
    per_example = largest.view(-1, rows_per_example).amax(1)
    return per_example.repeat_interleave(rows_per_example).view(-1, 1, 1)


class WordPerturbation:
    """A perturbation ``[rows, n, E]`` per look-up of word embeddings (BART has two), added in chosen passes.

    :meth:`begin` forgets that of the step before; the first pass with one of the names asks ``start(step, positions
    [rows, n], E, site)`` for it, and later passes use the same until :meth:`update`. Padding keeps 0.
    """

    def __init__(
        self, trainee: Trainee, passes: Sequence[str], start: Callable[[Step, Tensor, int, EmbeddingSite], Tensor]
    ) -> None:
        self.trainee, self.passes, self.start = trainee, tuple(passes), start
        self.values: dict[int, Tensor] = {}
        self.positions: dict[int, Tensor] = {}
        self.step: Step | None = None
        trainee.hooks.on_word_embedding(self._add)

    def begin(self, step: Step) -> None:
        """Forget the perturbations of the step before."""
        self.step = step
        self.values.clear()
        self.positions.clear()

    def tensors(self) -> list[Tensor]:
        """The perturbations in the order of their look-ups; each is a leaf that asks for gradients."""
        return [self.values[index] for index in sorted(self.values)]

    def update(self, values: Sequence[Tensor]) -> None:
        """Put ``values`` instead of :meth:`tensors`, 0 on padding."""
        for index, value in zip(sorted(self.values), values, strict=True):
            kept = value.detach() * self.positions[index].unsqueeze(-1)
            self.values[index] = kept.requires_grad_()

    def draws(self, law: Law, purpose: str, *key: str | int) -> Iterator[Tensor]:
        """Fresh draws for each of :meth:`tensors`."""
        assert self.step is not None
        for index in sorted(self.values):
            generator = self.step.generator(purpose, *key, index)
            width = self.values[index].shape[-1]
            yield token_draws(self.positions[index], width, self.step.batch.real_tokens, law, generator)

    def _add(self, tensor: Tensor, site: EmbeddingSite) -> Tensor:
        if (current := self.trainee.running(*self.passes)) is None:
            return tensor
        if site.index not in self.values:
            assert self.step is not None
            positions = current.attention_mask.bool()
            self.positions[site.index] = positions
            first = self.start(self.step, positions, tensor.shape[-1], site)
            self.values[site.index] = first.detach().requires_grad_()
        value = self.values[site.index]
        # In fp32: half precision would round small perturbations away.
        return tensor.float() + (value.transpose(0, 1) if site.batch_dim == 1 else value)

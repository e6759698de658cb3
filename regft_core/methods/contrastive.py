"""Contrastive fine-tuning of the encoder, the first half of SetFit (Tunstall et al., 2022, arXiv:2209.11055).

Every training row is an anchor; a row of its own class is drawn for it, and one of another class. The loss
is the mean over these pairs of (cos(u, v) - y)^2, y = 1 for the same class and 0 for another, where u and v
are pooled token vectors. Later phases fit a head to the encoder that this leaves (``setfit.yaml``).

The number of pairs is the paper's R: each epoch of the phase gives every row one positive and one negative
pair, so ``training: {epochs: 20}`` is R = 20, 2 * R * rows pairs.

Differences between paper and the setfit package (1.2):
- pairs: the paper draws R positive and R negative pairs per class; the package, with ``num_iterations: R``, R of
  each per row, as here. Its default since 1.0 is other: every pair, the rarer kind repeated, in one epoch.

Differences from the package, here:
- it lists all unordered pairs and walks through them; here each partner is drawn anew for each anchor. Like the
  package, which pairs a row with itself, a class of one row has no other positive; elsewhere a row is never its own.
- the two pairs of an anchor are in one step and share its vector, so a step of B anchors encodes 3 B inputs for 2 B
  pairs, where the package encodes 4 B. ``batch_size: 8`` gives its 16 pairs per step.
- learning rate: 2e-5, the package's default, is in ``setfit.yaml``; weight decay, clipping, warm-up and schedule are
  those of the shared protocol.
- texts of a pair task are one input, as in fine-tuning; the package takes single texts.
- the head reads vectors of length 1 (``pooling: unit_mean`` in ``setfit.yaml``). The package scales them where the
  checkpoint's own pipeline does, as those of MiniLM and MPNet do; for other encoders set ``pooling: mean``.
- of several layers (``mean_last_four``) the last one counts as much as the others together, as in a solved head.
- with the family's own head (``pooling: head``) the vectors are means over tokens, which that head does not read.

``pairs: batch`` is ours: every pair of a step's rows, each encoded once, where drawn partners encode three rows for two
pairs. Pairs of one class and of two have half of the loss each; a step without pairs of a kind has the other kind's
alone. Of 60 rows it reaches the package's accuracy with a twelfth of its passes (benchmarks/README.md). With gradient
accumulation the pairs are those of one micro batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from regft_core.errors import RunFailed
from regft_core.hooks.base import Cost, Declares, Description, Flip, Handed, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import LOG_EVERY, Batch, FitData, Step, Tensor, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.schema.method import FINETUNE, Phase

PARTS = ("anchor", "positive", "negative")


class ContrastiveConfig(StrictModel):
    pairs: Literal["drawn", "batch"] = Field(
        "drawn", description="drawn: a partner of each kind for every row; batch: every pair of a step's rows"
    )
    partners: Literal["labels", "random"] = Field("labels", description="random: any rows are positives, and negatives")


def pair_loss(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
    """Mean of (cos(u, v) - y)^2 over pairs of vectors [n, H] with targets [n]."""
    return torch.nn.functional.mse_loss(torch.nn.functional.cosine_similarity(first, second), targets)


def batch_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """Mean of (cos(u, v) - y)^2 over pairs of rows of ``vectors`` [B, H], each kind of pair with half of it."""
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    same = labels[:, None] == labels[None, :]
    squares = (unit @ unit.T - same.to(unit.dtype)).square()
    kinds = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device), ~same
    sums = torch.stack([(squares * kind).sum() for kind in kinds])
    counts = torch.stack([kind.sum() for kind in kinds])
    return (sums / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)


class Partners:
    """Draws partners of ``rows``: by their labels, or any other row (``by`` is the option ``partners``).

    Raises RunFailed when no row has a row of another class.
    """

    def __init__(self, rows: Sequence[int], labels: Sequence[int | float], by: str) -> None:
        groups: dict[int | float, list[int]] = {}
        for row, label in zip(rows, labels, strict=True):
            groups.setdefault(label, []).append(row)
        if len(groups) < 2:
            raise RunFailed(
                "one-class",
                f"contrastive: all {len(labels)} training rows have the same label, so there are no pairs of different "
                "classes; take more rows, or subsample: {stratified: true}",
            )
        self._random = by == "random"
        self._label = dict(zip(rows, labels, strict=True))
        self._other = {label: [row for row in rows if self._label[row] != label] for label in groups}
        self._same = {label: list(rows) for label in groups} if self._random else groups

    def positive(self, row: int, draw: float) -> int:
        """Another row of the same class, each as likely, or the row itself where it has none; ``draw`` in [0, 1)."""
        same = self._same[self._label[row]]
        if len(same) == 1:
            return row
        chosen = same[int(draw * (len(same) - 1))]
        return same[-1] if chosen == row else chosen

    def negative(self, row: int, draw: float) -> int:
        """A row of another class, or any other row where labels do not count."""
        if self._random:
            return self.positive(row, draw)
        other = self._other[self._label[row]]
        return other[int(draw * len(other))]


class Contrastive(Regulariser):
    name = "contrastive"
    Config = ContrastiveConfig
    off = None  # without its loss the phase has none
    controls = {
        "random_pairs": Flip(
            {"partners": "random"},
            "positives and negatives are drawn from all rows, so the pairs say nothing about labels",
        )
    }
    sources = {
        "pairs": "paper: section 3.1, pairs are drawn; batch is ours",
        "partners": "code: huggingface/setfit src/setfit/sampler.py:92-100",
    }

    @classmethod
    def declare(cls, options: ContrastiveConfig) -> Declares:
        passes = PARTS if options.pairs == "drawn" else PARTS[:1]
        return Declares(
            passes=passes,
            trains_on_task=False,
            description=Description(
                cost=Cost(len(passes), len(passes)),
                refused={
                    "mask": "it contrasts pooled vectors of texts, and no label word reads those",
                    "windows": "it contrasts one vector of each row, and an example has several",
                    "separately": "an example has two vectors then, and the loss compares one of each",
                },
            ),
        )

    @classmethod
    def check_options(cls, options: ContrastiveConfig, phase: Phase) -> list[str]:
        problems = reads_labels(phase)
        if phase.name == FINETUNE:
            problems.append("its loss trains no head; use it in an earlier phase and fit a head in a later one")
        return problems

    @classmethod
    def check_task(cls, options: ContrastiveConfig, task: TaskConfig) -> list[str]:
        if find(task.kind).one_label:
            return []
        return [f"its pairs are of one class or of two, and an example of a {task.kind} task is of no single class"]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.heads import PooledClassifier

        #: What the head of a pooled classifier reads of each row [B, d], before dropout.
        self._read: Tensor | None = None
        if isinstance(trainee.model, PooledClassifier):
            trainee.model.dropout.register_forward_pre_hook(lambda _, args: setattr(self, "_read", args[0]))
            self._layers = torch.tensor(trainee.model.parts, device=trainee.device)[:, None]
        # The head has no gradient; left in the optimiser, decay alone would move it.
        for name in trainee.sites.head:
            trainee.raw(name).requires_grad_(False)

    def fit(self, trainee: Trainee, data: FitData) -> None:
        """Learns nothing; remembers which rows there are to draw partners from."""
        self._stream = data.stream
        labels = [data.stream.encoded.labels[row] for row in data.stream.rows]
        self._partners = Partners(data.stream.rows, labels, self.options.partners)

    def backward(self, step: Step) -> Tensor:
        if self.options.pairs == "batch":
            random = self.options.partners == "random"
            labels = step.shuffled_labels("contrastive.labels") if random else step.batch.labels
            loss = batch_loss(self._vectors(step, step.batch), labels)
            step.backward(loss)
            return loss.detach()
        first, second = self._pairs(step)
        count = len(step.batch)
        targets = torch.cat([first.new_ones(count), first.new_zeros(count)])
        loss = pair_loss(first, second, targets)
        step.backward(loss, passes=3.0)
        if step.index % LOG_EVERY == 0:
            similarity = torch.nn.functional.cosine_similarity(first.detach(), second.detach())
            self.diagnostics.read(step, same_class=similarity[:count].mean(), other_class=similarity[count:].mean())
        return loss.detach()

    def _pairs(self, step: Step) -> tuple[Tensor, Tensor]:
        """Vectors [2B, H] of both sides of B positive and B negative pairs, one of each per anchor."""
        anchors = step.batch.host_indices
        # Which rows are read is decided on the host: draws of a GPU would have to be waited for.
        generator = step.trainee.generator("contrastive.partners", step.index, step.micro, on_host=True)
        # In double precision, so that the largest draw times a number of rows never rounds up to that number.
        draws = torch.rand(2, len(anchors), generator=generator, dtype=torch.float64)
        positive, negative = draws.tolist()
        rows = [
            *anchors,
            *(self._partners.positive(row, draw) for row, draw in zip(anchors, positive, strict=True)),
            *(self._partners.negative(row, draw) for row, draw in zip(anchors, negative, strict=True)),
        ]
        anchor, same, other = self._vectors(step, self._stream.collate(rows)).chunk(3)
        return torch.cat([anchor, anchor]), torch.cat([same, other])

    def _vectors(self, step: Step, batch: Batch) -> Tensor:
        """The vector of each row that the head reads, in fp32 [rows, d]; layers have their weights in a solved head."""
        from regft_core.models.poolings import mean

        _, hidden = step.forward(batch=batch, parts=self.declares.passes, hidden=True)
        vectors, self._read = self._read, None
        if vectors is None:
            return mean(hidden.float(), batch.attention_mask, "first")
        return (vectors.float().unflatten(1, (len(self._layers), -1)) * self._layers).flatten(1)

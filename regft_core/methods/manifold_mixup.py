"""Manifold mixup of hidden states (Verma et al., ICML 2019), for text as in TMix (Chen et al., ACL 2020).

In every step one layer k of ``layers`` is drawn, a share s from Beta(alpha, alpha), and a partner for every row by a
permutation of the batch. The layer reads s * h_i + (1 - s) * h_partner(i), position by position. The loss is
s * CE(label) + (1 - s) * CE(partner's label). One pass per step, as in plain fine-tuning.

Decisions:
- the larger of s and 1 - s goes to the row itself, as in TMix's code where labelled and unlabelled rows are mixed. A
  permutation and its inverse are equally likely, so the method has the same distribution. It makes ``mixes: states`` a
  control: the row's own label is that of the larger share.
- mixed labels: the loss is mixed, not the label. For cross-entropy both are the same. For squared error they differ by
  s * (1 - s) * (y - y')^2, which has no gradient. So regression needs no rule of its own.
- attention: a mixed row attends to the tokens of either row, in all layers, as a pass has one attention mask. So below
  layer k the shorter row sees [PAD] up to its partner's length. TMix's code shows every row all of its padding.
  Columns that are padding in both rows stay hidden, so the loss does not depend on how far the batch is padded.
- pooling over a mixed row reads the tokens of either row. XLNet's summary token at the end is mixed with its
  partner's, because XLNet is padded on the left.
- segments: XLNet's attention reads segments in every layer; those are the row's own.
- layers: only inputs of layers are mixed; layer 0 mixes the embedding output. TMix also mixes the output of the last
  layer (12 of 12), where regft has no site.
- gradient accumulation: partners are rows of the same micro batch, and each micro batch has draws of its own. A row
  can be its own partner; a batch of one row is plain fine-tuning.
- texts that are encoded separately are mixed with the partner's text of the same place.
- it owns the step program: a pass that another method adds (R-Drop, Cutoff) would compare mixed rows with plain ones.
- BART is refused: its decoder reads the words of the row besides the encoder's mixed states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Flip, Handed, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import Batch, LayerSite, Step, Tensor, Trainee, reads_labels
from regft_core.lazy import torch
from regft_core.schema import SomeItems

MIXED = "mixed"


class ManifoldMixupConfig(StrictModel):
    alpha: float = Field(16.0, ge=0, description="of Beta(alpha, alpha), which draws the share; large: near one half")
    layers: Literal["all"] | SomeItems[int] = Field(
        "all", description="one is drawn per step and its input mixed; 0-based, negative numbers count from the top"
    )
    mixes: Literal["both", "states", "labels"] = Field("both", description="states, labels: the other is the row's own")


@dataclass(frozen=True)
class Draw:
    """The draws of a batch: the row's own share (at least 1/2), the layer whose input is mixed, partners ``[B]``."""

    share: float
    layer: int
    partner: Tensor


class ManifoldMixup(Regulariser):
    name = "manifold_mixup"
    Config = ManifoldMixupConfig
    off = {"alpha": 0.0}
    controls = {
        "states_only": Flip({"mixes": "states"}, "states are mixed, each row keeps its own label"),
        "labels_only": Flip({"mixes": "labels"}, "labels are mixed, the states are those of one row"),
    }
    sources = {
        "alpha": "code: SALT-NLP/MixText README.md:71; the command for labelled texts alone",
        "layers": "ours: the paper draws from a set that the user chooses; TMix's 7, 9 and 12 presume 12 layers",
        "mixes": "code: SALT-NLP/MixText code/train.py:295-296",
    }

    @classmethod
    def declare(cls, options: ManifoldMixupConfig) -> Declares:
        return Declares(
            active=options.alpha > 0,
            edit_order=5,  # rows are mixed before noise is added (HyPe)
            passes=(MIXED,),
            description=Description(
                refused_architectures=("bart",),
                refused={
                    "mask": "the masks of two rows are at different places, so a mixed row has none",
                    "windows": "it mixes the rows of two examples, which may have different numbers of windows",
                },
                exempt={"limit": "a row attends to its partner's places, however little of them it takes"},
            ),
        )

    @classmethod
    def check_options(cls, options: ManifoldMixupConfig, phase: Phase) -> list[str]:
        return reads_labels(phase) if cls.declare(options).active else []

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        sites = trainee.sites
        if len(sites.embedding_layers) > 1:
            raise ModelError(
                "encoder-does-not-fit",
                f"manifold_mixup: the decoder of {sites.architecture} reads the words of one row besides mixed states; "
                "use an encoder-only model (bert, roberta, electra, deberta ...)",
            )
        self.layers = sites.layer_numbers("manifold_mixup.layers", self.options.layers)
        self.draw: Draw | None = None
        if 0 in self.layers:
            trainee.hooks.on_embedding_output(self._mix)
        if upper := [layer for layer in self.layers if layer]:
            trainee.hooks.on_layer_input(self._mix, upper)

    def _mix(self, tensor: Tensor, site: LayerSite) -> Tensor:
        """Each row's share of its own state and the rest of its partner's, at the layer that was drawn."""
        draw = self.draw
        if not self.trainee.running(MIXED) or draw is None or site.index != draw.layer:
            return tensor
        rows = rows_of(draw.partner, tensor.shape[site.batch_dim] // len(draw.partner))
        return draw.share * tensor + (1 - draw.share) * tensor.index_select(site.batch_dim, rows)

    def drawn(self, step: Step) -> Draw:
        """The draws of a batch; share and layer on the host, which reads them."""
        generator = step.trainee.generator("manifold_mixup.draws", step.index, step.micro, on_host=True)
        share = Random(generator.initial_seed()).betavariate(self.options.alpha, self.options.alpha)
        layer = self.layers[int(torch.randint(len(self.layers), (), generator=generator))]
        partner = torch.randperm(len(step.batch), generator=generator).to(step.batch.labels.device, non_blocking=True)
        return Draw(max(share, 1 - share), layer, partner)

    def backward(self, step: Step) -> Tensor:
        draw, batch, mixes = self.drawn(step), step.batch, self.options.mixes
        self.draw = None if mixes == "labels" else draw
        if mixes != "labels":
            batch = with_partners(batch, draw.partner, self.trainee.grouped)
        logits = step.forward(MIXED, batch=batch)
        loss = step.task_loss(logits)
        if mixes != "states":
            loss = draw.share * loss + (1 - draw.share) * step.task_loss(logits, batch.labels[draw.partner])
        step.backward(loss)
        self.diagnostics.read(step, share=draw.share)
        return loss.detach()


def rows_of(partner: Tensor, rows_per_example: int) -> Tensor:
    """The rows ``[rows]`` of each example's partner ``[B]``."""
    if rows_per_example == 1:
        return partner
    place = torch.arange(rows_per_example, device=partner.device)
    return (partner[:, None] * rows_per_example + place).flatten()


def with_partners(batch: Batch, partner: Tensor, grouped: bool) -> Batch:
    """The batch in which every row attends to its tokens and to those that its partner ``[B]`` has."""
    mask = batch.attention_mask | batch.attention_mask[rows_of(partner, batch.rows_per_example)]
    # Partners can fill all padding, and only the device knows: there a mask is built in any case.
    padded = batch.padded if not batch.padded or grouped else None
    return dataclasses.replace(batch, attention_mask=mask, padded=padded)

"""LNSR: layer-wise noise stability (Hua et al., NAACL 2021).

A second pass gets noise e at the input of one layer, and the outputs of that layer and of all above it
must not move: R = weight * mean over those layers r of |h_r(h + e) - h_r(h)|^2. The squared norm is over
the hidden units of a token; it is averaged over the real tokens of the batch. The loss is CE + R, whatever
the task. No official code was found, so there is no ``variant``.

Decisions, where the source that could be read is silent:
- both passes see the same dropout masks (and the same noise of other regularisers); with masks of their
  own, R would measure dropout.
- gradient flows through both passes.
- sizes: the noise is Gaussian, its sd 0.01 and the weight 1 are ours; the layer is a choice per task in the
  paper, 0 (the noise is on the embedding output) is ours.
- all layers count alike.
- BART: layers are counted over encoder and decoder; what a stack's last layer gives is compared for the
  decoder, whose output the head reads, and the encoder's through it.
- padding gets no noise and counts nowhere, so R does not depend on how far a batch is padded.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, Handed, MainPass, Regulariser, StrictModel
from regft_core.hooks.declare import LayerSite, Step, Tensor, Trainee
from regft_core.training.perturbation import token_draws

NOISED = "lnsr.noised"


class LnsrConfig(StrictModel):
    weight: float = Field(1.0, ge=0, description="of the mean squared difference; not published")
    scale: float = Field(0.01, ge=0, description="sd of the noise, absolute; not published")
    layer: int = Field(0, description="layer whose input gets the noise, 0-based; negative numbers count from the top")


class Lnsr(Regulariser):
    name = "lnsr"
    Config = LnsrConfig
    off = {"weight": 0.0}
    sources = {
        "weight": "ours: not stated in what could be read; with 1 penalty and cross-entropy are of one order",
        "scale": "ours: not stated in what could be read; 1% of unit-scale activations",
        "layer": "ours: the embedding output; the paper chooses the layer by task",
    }

    @classmethod
    def declare(cls, options: LnsrConfig) -> Declares:
        return Declares(
            active=options.weight > 0,
            edit_order=5,  # sees layer inputs before the noise of others (HyPe), which both passes share
            passes=(NOISED,),
            needs_hidden=True,
            reads_positions="inside",
            description=Description(
                cost=Cost(2, 2),
                smallest_effect=options.scale or None,
                refused={
                    "windows": "it averages over all tokens, and tokens that windows share would count several times"
                },
            ),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        (self.layer,) = trainee.sites.layer_numbers("lnsr.layer", [self.options.layer])
        self.step: Step | None = None
        self.states: dict[str, list[tuple[Tensor, LayerSite]]] = {}
        starts = trainee.sites.embedding_layers
        above = [index for index in range(self.layer + 1, len(trainee.sites.layers)) if index not in starts]
        trainee.hooks.on_layer_input(self._see, above)
        trainee.hooks.on_layer_input(self._noise, [self.layer])

    def _see(self, tensor: Tensor, site: LayerSite) -> Tensor:
        if current := self.trainee.running("main", NOISED):
            self.states.setdefault(current.name, []).append((tensor, site))
        return tensor

    def _noise(self, tensor: Tensor, site: LayerSite) -> Tensor:
        """The layer's input plus noise on real tokens, in the noised pass."""
        if not self.trainee.running(NOISED) or self.step is None or self.options.scale == 0:
            return tensor
        positions = self.step.batch.attention_mask.bool()
        generator = self.step.generator("lnsr.noise")
        draws = token_draws(positions, tensor.shape[-1], self.step.batch.real_tokens, "normal", generator)
        # In fp32: half precision would round small noise away.
        return tensor.float() + self.options.scale * (draws.transpose(0, 1) if site.batch_dim == 1 else draws)

    def terms(self, step: Step, main: MainPass) -> Tensor:
        """The weighted mean over layers of how far the noise moved their outputs."""
        assert main.hidden is not None
        self.step = step
        _, hidden = step.forward(NOISED, draw=0, hidden=True)
        mask = step.batch.attention_mask
        moved = [movement(main.hidden, hidden, mask)]
        pairs = zip(self.states.get("main", ()), self.states.get(NOISED, ()), strict=True)
        for (clean, site), (noised, _) in pairs:
            if site.batch_dim == 1:
                clean, noised = clean.transpose(0, 1), noised.transpose(0, 1)
            moved.append(movement(clean, noised, mask))
        self.states.clear()
        self.step = None
        mean = sum(moved[1:], moved[0]) / len(moved)
        self.diagnostics.read(step, movement=mean)
        return self.options.weight * mean


def movement(clean: Tensor, noised: Tensor, positions: Tensor) -> Tensor:
    """Mean over ``positions [rows, n]`` of the squared distance of two states ``[rows, n, H]``."""
    squares = (noised.float() - clean.float()).square().sum(-1)
    return (squares * positions).sum() / positions.sum()

"""R3F: predictions must not change under noise on the word embeddings (Aghajanyan et al., ICLR 2021).

The loss is CE(clean) + weight * (KL(p || q) + KL(q || p)), averaged over the batch, where q is predicted
from word embeddings with noise of size about 1e-5; the two directions are summed, not halved, and the
noised pass has no task loss. The noised embeddings are cut off from the table, so that pass trains
everything but it. Padding gets noise too. R4F adds spectral normalisation of the head (``r4f.py``).

Differences between paper and released code (``variant``):
- regression: squared difference of the outputs, regft's own substitute (as in the comparisons of the
  HyPe paper), marked; released: no term at all, so it is refused.

Decisions:
- dropout is active in both passes, with masks of their own, as in the released code. The divergence of
  two dropout masks is then far larger than that of the noise: ``scale: 0`` is the control which shows
  that, and nearly R-Drop with one cross-entropy.
- the noised pass is called ``r3f.noised``. In HyPe + R3F the hidden noise acts there in place of the
  embedding noise: ``r3f: {scale: 0.0}`` with ``hype: {passes: [r3f.noised]}``; both together is an option.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, Flip, Regulariser, StrictModel
from regft_core.hooks.declare import DropoutWish, EmbeddingSite, Handed, MainPass, Step, Tensor, Trainee
from regft_core.kinds import find
from regft_core.schema.tasks import TaskConfig
from regft_core.training.distances import divergence
from regft_core.training.perturbation import draw

NOISED = "r3f.noised"


class R3fConfig(StrictModel):
    variant: Literal["paper", "released"] = "paper"
    weight: float = Field(1.0, ge=0, description="of the divergence; 0.1, 0.5, 1 or 5 in the paper")
    distribution: Literal["uniform", "normal"] = "uniform"
    scale: float = Field(1e-5, ge=0, description="bound of the uniform law, U(-scale, scale), or sd of the normal one")


class R3f(Regulariser):
    name = "r3f"
    Config = R3fConfig
    off = {"weight": 0.0}
    controls = {"no_noise": Flip({"scale": 0.0}, "two passes and their divergence without noise")}
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "weight": "code: facebookresearch/fairseq examples/rxf/rxf_src/sentence_prediction_r3f.py:47",
        "distribution": "code: facebookresearch/fairseq examples/rxf/rxf_src/sentence_prediction_r3f.py:49",
        "scale": "code: facebookresearch/fairseq examples/rxf/rxf_src/sentence_prediction_r3f.py:45",
    }

    @classmethod
    def declare(cls, options: R3fConfig) -> Declares:
        return Declares(
            active=options.weight > 0,
            dropout=DropoutWish(either=options.scale == 0),
            passes=(NOISED,),
            description=Description(
                cost=Cost(2, 2),
                degraded={
                    "regression": "r3f on regression: the squared difference is regft's substitute; the paper compares "
                    "distributions"
                },
                smallest_effect=options.scale or None,
            ),
        )

    @classmethod
    def check_task(cls, options: R3fConfig, task: TaskConfig) -> list[str]:
        if not find(task.kind).has_labels and options.variant == "released":
            return [
                "the released code adds nothing on regression, which would be plain fine-tuning at twice the cost; "
                "use variant: paper, whose squared difference is regft's own substitute"
            ]
        return []

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        trainee.hooks.on_word_embedding(self._noised)

    def _noised(self, tensor: Tensor, site: EmbeddingSite) -> Tensor:
        """The embeddings of the noised pass, without a way back to the table; others as they are."""
        if (current := self.trainee.running(NOISED)) is None:
            return tensor
        detached = tensor.detach().float()
        if self.options.scale == 0:
            return detached
        generator = self.trainee.generator("r3f.noise", *current.key, site.index)
        return detached + self.options.scale * draw(detached.shape, self.options.distribution, generator)

    def terms(self, step: Step, main: MainPass) -> Tensor:
        noised = step.forward(NOISED, draw=NOISED)
        apart = divergence(main.logits, noised, step.setting.kind).mean()
        self.diagnostics.read(step, divergence=apart)
        return self.options.weight * apart

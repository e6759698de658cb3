"""Mixout: weights are swapped for their pretrained values at random (Lee, Cho, Kang, ICLR 2020).

In training every linear uses W0 + m (W - W0) / (1 - p) in place of its weight W: m is drawn with mean
1 - p per input unit, shared by all its outgoing weights, so a column is either the pretrained one or the
current one pushed away from it, and the mean over draws is W. Biases, embeddings and norms stay. All
dropout, of hidden representations and of attention, is switched off. Evaluation and the result are W.

Differences between paper and released code (``variant``):
- gradient: that of the formula, m / (1 - p); released: m, without the factor, which Adam does not see
  but clipping does.

Decisions:
- the head's linear is mixed too, with its own initial values (as released), those of an earlier phase where it starts
  from such; ``head: leave`` does not.
- the mask is drawn per pass, from the pass's draw: passes of one draw (the two branches of a comparison
  that must see the same network) share it. ALBERT's shared layers have one mask per pass.
- an input unit of XLNet's raw matrices is an entry of the dimension that is summed over.
- p = 0.7 is a choice of ours. Somayajula et al. tune it from 0.1 to 0.8; public commands take 0.1 and 0.9. The
  paper's own text was not at hand to check.
- ``target: zero`` mixes with 0 instead (the paper's comparison, a dropout of input units): its control.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, DropoutWish, Flip, Handed, Regulariser, StrictModel
from regft_core.hooks.declare import Tensor, Trainee
from regft_core.lazy import torch
from regft_core.models.architectures import shape_of_inputs


class MixoutConfig(StrictModel):
    variant: Literal["paper", "released"] = "paper"
    probability: float = Field(0.7, ge=0, le=1, description="share of input units whose weights are pretrained ones")
    target: Literal["checkpoint", "zero"] = "checkpoint"
    head: Literal["mix", "leave"] = Field("mix", description="whether new linears are mixed with their initial values")
    dropout: Literal["off", "keep"] = "off"


class Mixout(Regulariser):
    name = "mixout"
    Config = MixoutConfig
    off = {"probability": 0.0, "dropout": "keep"}
    controls = {
        "no_mixing": Flip({"probability": 0.0}, "no mixing; dropout as in the method"),
        "zero": Flip({"target": "zero"}, "dropped columns become 0, not the pretrained ones"),
    }
    sources = {
        "variant": "ours: the gradient of the printed formula",
        "probability": (
            "ours: in the range 0.1 to 0.8 that Somayajula et al. 2024, appendix D.3, tune; public commands "
            "take 0.9 (bloodwass/mixout example_huggingface.py:81) and 0.1 "
            "(asappresearch/revisit-bert-finetuning sample_commands/mixout.sh:9); the paper was not at hand to "
            "check"
        ),
        "target": "code: bloodwass/mixout mixout/mixout.py:69",
        "head": "code: bloodwass/mixout example_huggingface.py:46-57; every linear is mixed",
        "dropout": "code: bloodwass/mixout example_huggingface.py:44-45",
    }

    @classmethod
    def declare(cls, options: MixoutConfig) -> Declares:
        off = options.dropout == "off"
        return Declares(
            active=options.probability > 0,  # without mixing its wish for dropout remains: that is the control
            dropout=DropoutWish(hidden=0.0, attention=0.0) if off else DropoutWish(),
            anchors=("checkpoint",) if options.target == "checkpoint" else (),
            edits=("structure",),
            owns_weights=True,
            random_passes=0 < options.probability < 1,
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.weight_views import View

        self.mixed = mixed_weights(trainee, head=self.options.head == "mix")
        self._anchor: dict[str, Tensor] = {}
        if self.options.target == "checkpoint":
            head = {name: trainee.raw(name).detach().clone() for name in trainee.sites.head}
            self._anchor = trainee.anchor("checkpoint") | head
        for name in self.mixed:
            trainee.put_view(name, View(self._mixed, name))

    def _mixed(self, name: str, weight: Tensor) -> Tensor:
        """The weight that a pass of training uses, with a mask of the pass's draw; in evaluation W itself."""
        current = self.trainee.current
        if current is None or not self.trainee.model.training:
            return weight
        generator = self.trainee.generator("mixout.mask", *current.key, name)
        draws = torch.rand(shape_of_inputs(name, weight.shape), generator=generator, device=self.trainee.device)
        mask = (draws >= self.options.probability).float()
        return mix(weight, self._anchor.get(name), mask, self.options.probability, self.options.variant == "paper")

    def export(self, trainee: Trainee) -> None:
        trainee.take_views(self.mixed, folded=False)


def mix(weight: Tensor, anchor: Tensor | None, mask: Tensor, probability: float, scaled: bool) -> Tensor:
    """W0 + m (W - W0) / (1 - p) of a weight W, its anchor W0 (None: zeros) and a mask m that broadcasts to W.

    A probability p of 1 gives W0. Without ``scaled`` the factor 1 / (1 - p) is left out of the gradient.
    """
    kept = 1 - probability
    if not scaled:
        # The value of W, and kept times its gradient.
        weight = weight.detach() + kept * (weight - weight.detach())
    factor = mask / kept if kept > 0 else torch.zeros_like(mask)
    return factor * weight if anchor is None else anchor + factor * (weight - anchor)


def mixed_weights(trainee: Trainee, *, head: bool) -> list[str]:
    """Names of the weights of all linears (and XLNet's raw matrices), with or without the newly drawn ones."""
    names = list(trainee.sites.mixable)
    if head:
        linear = {f"{n}.weight" for n, m in trainee.model.named_modules() if isinstance(m, torch.nn.Linear)}
        names += [name for name in trainee.sites.head if name in linear]
    return names

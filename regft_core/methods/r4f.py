"""R4F's own part: spectral normalisation of the head's last projection (Aghajanyan et al., ICLR 2021).

The weight W of the last linear is used as W / sigma(W), its largest singular value, so that the head is
1-Lipschitz; the bias stays. R4F as published is this together with ``r3f`` (``pipelines/methods/r4f.yaml``).
The view stays in evaluation and is folded into the weight at the end.

Differences between paper and released code:
- largest singular value: exact; released: estimated by power iteration, one step per pass, which lags
  behind the weight and moves with every pass. That is not offered: an estimate that depends on how many
  passes a step has would make the method differ between its compositions.
"""

from __future__ import annotations

from collections.abc import Mapping

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Handed, NoOptions, Regulariser
from regft_core.hooks.declare import Trainee


class R4f(Regulariser):
    name = "r4f"
    off = None  # a head is normalised or it is not

    @classmethod
    def declare(cls, options: NoOptions) -> Declares:
        return Declares(
            edits=("structure",),
            edit_order=5,  # the head alone; views of other weights do not depend on it
            owns_weights=True,
            trains_encoder=False,  # its view is of the head, which is trained over a frozen encoder, too
            description=Description(
                refused={"mask": "it bounds the matrix of a head, and label words are rows of the embedding"}
            ),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.weight_views import SpectralView

        self.weight = f"{trainee.output_layer()}.weight"
        if not trainee.raw(self.weight).requires_grad:
            raise ModelError(
                "head-not-trained",
                f"r4f: nothing trains the head ('{self.weight}') in the phase '{self.setting.phase}', so to normalise "
                "it would do nothing; use it in the phase that trains on the task's labels",
            )
        trainee.put_view(self.weight, SpectralView())

    def export(self, trainee: Trainee) -> None:
        trainee.take_views([self.weight], folded=True)

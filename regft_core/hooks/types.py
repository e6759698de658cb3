"""What hooks are handed, as names for annotations: a method's file needs no import of torch or of training for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.batches import Batch
    from regft_core.data.examples import Example
    from regft_core.models.sites import EmbeddingSite, LayerSite
    from regft_core.training.fitting import FitData
    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee
else:
    Batch = EmbeddingSite = Example = FitData = LayerSite = Step = Tensor = Trainee = Any

__all__ = ["Batch", "EmbeddingSite", "Example", "FitData", "LayerSite", "Step", "Tensor", "Trainee"]

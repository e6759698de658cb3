"""The mean over the tokens, scaled to length 1."""

import torch
from torch import Tensor

from regft_core.models.poolings import mean

pool = mean.pool


def finish(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=1)

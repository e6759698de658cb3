"""The summary token of the encoder's family."""

import torch
from torch import Tensor


def pool(hidden: Tensor, mask: Tensor, summary: str) -> Tensor:
    real = mask if summary == "first" else mask.flip(1)
    position = real.to(torch.int64).argmax(1)
    if summary == "last":
        position = mask.shape[1] - 1 - position
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), position]

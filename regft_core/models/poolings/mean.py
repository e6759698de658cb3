"""The mean over the tokens."""

from torch import Tensor


def pool(hidden: Tensor, mask: Tensor, summary: str) -> Tensor:
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    mean: Tensor = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
    return mean

"""The last token."""

from torch import Tensor

from regft_core.models.poolings import cls


def pool(hidden: Tensor, mask: Tensor, summary: str) -> Tensor:
    return cls.pool(hidden, mask, "last")

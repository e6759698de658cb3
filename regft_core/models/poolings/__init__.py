"""Ways to one vector of a text's tokens; ``model.pooling`` names one of these, or a file (``catalogue.py`` finds it).

A file defines ``pool(hidden, mask, summary)``: vectors [rows, H] of token vectors [rows, n, H]. ``mask`` [rows, n] is 1
on real tokens; every row has at least one, and padding may be on either side. ``summary`` is the real token that stands
for a text in the family, ``first`` or ``last``. ``finish(vectors)``, if there is one, acts once the windows of a text
are averaged. With a number ``layers`` so many of the last layers are pooled, and their vectors stand side by side,
the last layer's at the end. There are no parameters. An export knows the shipped ones only.
"""

from __future__ import annotations

from types import SimpleNamespace

from regft_core.lazy import Tensor, torch


def cls(hidden: Tensor, mask: Tensor, summary: str) -> Tensor:
    """The summary token of the encoder's family."""
    places = mask if summary == "first" else torch.arange(mask.shape[1], device=mask.device) * mask
    position = places.to(torch.int64).argmax(1)
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), position]


def last(hidden: Tensor, mask: Tensor, summary: str) -> Tensor:
    """The last token."""
    return cls(hidden, mask, "last")


def mean(hidden: Tensor, mask: Tensor, summary: str) -> Tensor:
    """The mean over the tokens; ``unit_mean`` scales it to length 1."""
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=1)


def _level(vectors: Tensor) -> Tensor:
    """Vectors with a root mean square of 1: layers differ in length."""
    return vectors / vectors.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)


SHIPPED = {
    "cls": SimpleNamespace(pool=cls),
    "last": SimpleNamespace(pool=last),
    "mean": SimpleNamespace(pool=mean),
    # The best features of a frozen encoder in Devlin et al. (2019, section 5.3), there of each token.
    "mean_last_four": SimpleNamespace(pool=mean, finish=_level, layers=4),
    "unit_mean": SimpleNamespace(pool=mean, finish=_unit),
}

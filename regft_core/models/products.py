"""Matrix products in fp32 through oneDNN on AMD's Zen 5, where torch's own choice, MKL, takes AVX2 only.

A training step takes 0.63 of its time (benchmarks/README.md, "Measured earlier"). torch has no switch for it in fp32,
so ``mm`` and ``addmm`` are registered anew for the CPU through torch's own interface. Sums are added up in another
order, so last bits differ; the environment of a result names it. Only processes that regft starts do it (they set
``SWITCH``): an import of regft changes nothing.
"""

from __future__ import annotations

import os
import re
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

#: Environment variable: 1 in processes that regft starts and in theirs; 0 leaves all products to torch.
SWITCH = "REGFT_ONEDNN"
#: Family of AMD's Zen 5 in /proc/cpuinfo. On Zen 4 (25) a step gains 3 to 5%, which is not worth other bits.
_FAMILY = "26"
#: Multiplications below which a call of oneDNN costs more than it saves (measured: 64 x 64 x 64 loses, 16 x 384 x 384
#: gains).
_FEWEST = 1_000_000


@cache
def _slow_with_mkl() -> bool:
    """Whether this is the processor, and this torch has both libraries."""
    cpus = Path("/proc/cpuinfo")
    text = cpus.read_text(encoding="utf-8", errors="replace") if cpus.is_file() else ""
    zen5 = "AuthenticAMD" in text and re.search(rf"^cpu family\s*: {_FAMILY}$", text, re.MULTILINE) is not None
    return zen5 and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()


def fast_products() -> bool:
    """Whether fp32 products of this process go through oneDNN, once a model was loaded."""
    return os.environ.get(SWITCH) == "1" and _slow_with_mkl() and torch._C._get_mkldnn_enabled()


def take_fast_products() -> None:
    """Let linear layers multiply through oneDNN from now on, where that is faster; nothing happens elsewhere."""
    if fast_products():
        _registered()


@cache
def _registered() -> Any:
    """The registration, which lasts as long as this object; of the whole process, so it is made once."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
        library.impl("mm", _mm, "CPU", allow_override=True)
        library.impl("addmm", _addmm, "CPU", allow_override=True)
    return library


def _product(one: Tensor, other: Tensor, bias: Tensor | None) -> Tensor | None:
    """The product by oneDNN; None for matrices that it does not take or gain by: torch says what is wrong with them."""
    fit = one.dim() == other.dim() == 2 and one.shape[1] == other.shape[0]
    large = fit and one.numel() * other.shape[1] >= _FEWEST
    if not (large and one.dtype is other.dtype is torch.float32 and fast_products()):
        return None
    weight = other.t()
    # Of rows with gaps between them (one token of every text) oneDNN has a reference implementation only.
    if not (weight.is_contiguous() or other.is_contiguous()):
        weight = weight.contiguous()
    return torch.ops.mkldnn._linear_pointwise(one, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _mm(one: Tensor, other: Tensor) -> Tensor:
    product = _product(one, other, None)
    # The variant with a place for the result is another operation to torch, and is MKL's as before.
    return torch.mm(one, other, out=one.new_empty(0)) if product is None else product


def _addmm(added: Tensor, one: Tensor, other: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    bias = added.dim() == 1 and added.dtype is torch.float32 and added.shape[0] == other.shape[-1]
    product = _product(one, other, added) if beta == alpha == 1 and bias else None
    return torch.addmm(added, one, other, beta=beta, alpha=alpha, out=one.new_empty(0)) if product is None else product

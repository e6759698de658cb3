"""Torch, numpy and parts of scipy, imported at first use: settings are checked faster than torch is imported."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch as torch
    from scipy import optimize, sparse, special, stats
    from torch import Tensor

    Array = npt.NDArray[Any]
else:
    Array = Tensor = Any

    class _LazyModule(ModuleType):
        def __getattr__(self, name: str) -> Any:
            module = importlib.import_module(self.__name__)
            self.__dict__.update(module.__dict__)
            return getattr(module, name)

    torch, np = _LazyModule("torch"), _LazyModule("numpy")
    optimize, sparse = _LazyModule("scipy.optimize"), _LazyModule("scipy.sparse")
    special, stats = _LazyModule("scipy.special"), _LazyModule("scipy.stats")

__all__ = ["Array", "Tensor", "np", "optimize", "sparse", "special", "stats", "torch"]

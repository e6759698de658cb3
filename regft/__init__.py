"""regft from Python, under the name of the command: ``import regft``.

The package itself is ``regft_core``: own methods, exported models and run keys name it. A name is imported when it is
used, since torch and transformers take seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regft_core import __version__ as __version__

if TYPE_CHECKING:
    from regft_core.api import Fitted, LoadedModel, Project, Results, fit, load_model
    from regft_core.classifier import Classifier

__all__ = ["Classifier", "Fitted", "LoadedModel", "Project", "Results", "fit", "load_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regft' has no attribute '{name}'; there are: {', '.join(__all__)}")
    return getattr(import_module("regft_core.classifier" if name == "Classifier" else "regft_core.api"), name)


def __dir__() -> list[str]:
    return __all__

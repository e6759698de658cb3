"""regft from Python, under the name of the command: ``import regft``.

The package itself is ``regft_core``: own methods, exported models and run keys name it.
"""

from regft_core.api import Fitted, LoadedModel, Project, Results, fit, load, load_model
from regft_core.classifier import Classifier

__all__ = ["Classifier", "Fitted", "LoadedModel", "Project", "Results", "fit", "load", "load_model"]

"""Finds the regularisers: every file of ``regft_core/methods`` that defines a ``Regulariser``.

There is no list to keep up to date. Adding a method is adding a file; a name that two files
claim is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from regft_core.errors import ConfigError, Problem
from regft_core.hooks.base import Regulariser

METHODS = Path(__file__).parents[1] / "methods"


def _modules(folders: Sequence[Path]) -> list[ModuleType]:
    found = []
    for info in sorted(pkgutil.iter_modules([str(METHODS)]), key=lambda info: info.name):
        if not info.name.startswith("_"):
            found.append(importlib.import_module(f"regft_core.methods.{info.name}"))
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            spec = importlib.util.spec_from_file_location(f"regft_extra_methods_{path.stem}", path)
            if spec is None or spec.loader is None:
                continue
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found.append(module)
    return found


@lru_cache(maxsize=8)
def _discover(folders: tuple[Path, ...]) -> dict[str, type[Regulariser]]:
    registry: dict[str, type[Regulariser]] = {}
    problems = []
    for module in _modules(folders):
        for value in vars(module).values():
            if not (inspect.isclass(value) and issubclass(value, Regulariser) and value.__module__ == module.__name__):
                continue
            if not value.name:
                continue
            if value.name in registry:
                message = f"'{value.name}' is also defined in {registry[value.name].__module__}"
                problems.append(Problem(str(module.__file__), 0, value.__name__, message, "give it another name"))
            registry[value.name] = value
    if problems:
        raise ConfigError(problems)
    return registry


def discover(folders: Sequence[Path] = ()) -> dict[str, type[Regulariser]]:
    """Return ``{name: class}`` for ``regft_core/methods`` and, optionally, further folders of method files.

    Importing the method files does not import torch.

    Raises:
        ConfigError: two files define a regulariser of the same name.
    """
    return dict(_discover(tuple(Path(folder) for folder in folders)))

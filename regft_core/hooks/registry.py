"""Finds the regularisers: every file of ``regft_core/methods`` that defines a ``Regulariser``.

There is no list to keep up to date. Adding a method is adding a file; a name that two files
claim is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from regft_core.errors import ConfigError, Problem
from regft_core.hooks.base import Regulariser
from regft_core.hooks.check_class import class_problems, shown

METHODS = Path(__file__).parents[1] / "methods"


def _modules(folders: Sequence[Path]) -> list[ModuleType]:
    found = []
    for info in sorted(pkgutil.iter_modules([str(METHODS)]), key=lambda info: info.name):
        if not info.name.startswith("_"):
            with _said_with_its_line(METHODS / f"{info.name}.py"):
                found.append(importlib.import_module(f"regft_core.methods.{info.name}"))
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            spec = importlib.util.spec_from_file_location(f"regft_extra_methods_{path.stem}", path)
            if spec is None or spec.loader is None:
                continue
            module = importlib.util.module_from_spec(spec)
            with _said_with_its_line(path):
                spec.loader.exec_module(module)
            found.append(module)
    return found


@contextmanager
def _said_with_its_line(path: Path) -> Iterator[None]:
    """Raises ConfigError with the line of a method's file at which importing it failed."""
    try:
        yield
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else (lines or [0])[-1]
        said = error.msg if isinstance(error, SyntaxError) else error
        message = f"cannot be imported: {type(error).__name__}: {said}"
        problem = Problem(
            "cannot-import", shown(str(path)), line or 0, "", message, "repair the file, or move it out of the folder"
        )
        raise ConfigError([problem]) from error


@lru_cache(maxsize=8)
def _discover(folders: tuple[Path, ...]) -> dict[str, type[Regulariser]]:
    registry: dict[str, type[Regulariser]] = {}
    problems = []
    for module in _modules(folders):
        count = len(registry)
        for value in vars(module).values():
            if not (inspect.isclass(value) and issubclass(value, Regulariser) and value.__module__ == module.__name__):
                continue
            if not value.name:
                continue
            if value.name in registry:
                message = f"'{value.name}' is also defined in {registry[value.name].__module__}"
                problems.append(
                    Problem("name-taken", str(module.__file__), 0, value.__name__, message, "give it another name")
                )
            registry[value.name] = value
            problems += class_problems(value, shown(module.__file__))
        if len(registry) == count and module.__name__.startswith("regft_core.methods.") and not problems:
            hint = "a method is a subclass of regft_core.hooks.base.Regulariser with a 'name'; helpers begin with _"
            problems.append(Problem("no-method-in-file", shown(module.__file__), 0, "", "defines no method", hint))
    if problems:
        raise ConfigError(problems)
    return registry


def discover(folders: Sequence[Path] = ()) -> dict[str, type[Regulariser]]:
    """Return ``{name: class}`` for ``regft_core/methods`` and, optionally, further folders of method files.

    Importing the method files does not import torch.

    Raises:
        ConfigError: a file cannot be imported or defines none, two define the same name, or a class has a hook that
            nothing would call or that cannot be called.
    """
    return dict(_discover(tuple(Path(folder) for folder in folders)))

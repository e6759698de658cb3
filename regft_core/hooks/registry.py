"""Finds the regularisers: every file of ``regft_core/methods``, and of a project's ``methods``, that defines one.

There is no list to keep up to date. Adding a method is adding a file; a name that two files
claim is an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from regft_core.catalogue import METHODS, import_file, said_with_its_line, shown
from regft_core.errors import ConfigError, Problem
from regft_core.hooks.base import Regulariser
from regft_core.hooks.check_class import class_problems


class Registry(dict[str, type[Regulariser]]):
    """Name -> class.

    Attributes:
        broken: name of a file of the project, or of an installed package -> what is wrong with it. It stops nothing
            that does not use it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken: dict[str, ConfigError] = {}


def _files(folders: Sequence[Path]) -> Iterator[ModuleType]:
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            with said_with_its_line(path):
                module = import_file(path, f"regft_extra_methods_{path.stem}")
            yield module


@lru_cache(maxsize=8)
def _discover(folders: tuple[Path, ...], state: tuple[tuple[str, int, int], ...]) -> Registry:
    registry, problems = Registry(), list[Problem]()
    others = {Path(path) for path, _, _ in state}
    for name in METHODS.names():
        own = METHODS.path(name) in others
        try:
            found = dict(_classes(METHODS.load(name), registry, helpers=False))
        except ConfigError as error:
            if own:
                registry.broken[name] = error
            else:
                problems += error.problems
            continue
        registry.update(found)
    for module in _files(folders):
        registry.update(_classes(module, registry, helpers=True))
    if problems:
        raise ConfigError(problems)
    return registry


def _classes(module: ModuleType, registry: Registry, *, helpers: bool) -> list[tuple[str, type[Regulariser]]]:
    """Name and class of the regularisers of a file. Raises ConfigError with all that is wrong with them.

    Args:
        helpers: whether a file may define none.
    """
    found, problems, file = list[tuple[str, type[Regulariser]]](), list[Problem](), shown(module.__file__)
    for value in vars(module).values():
        if not (inspect.isclass(value) and issubclass(value, Regulariser) and value.__module__ == module.__name__):
            continue
        if not value.name:
            continue
        taken = registry.get(value.name) or dict(found).get(value.name)
        if taken is not None:
            message = f"'{value.name}' is also defined in {taken.__module__}"
            problems.append(Problem("name-taken", file, 0, value.__name__, message, "give it another name"))
        found.append((value.name, value))
        problems += class_problems(value, file)
    if not found and not helpers:
        hint = "a method is a subclass of regft_core.hooks.base.Regulariser with a 'name'; helpers begin with _"
        problems.append(Problem("no-method-in-file", file, 0, "", "defines no method", hint))
    if problems:
        raise ConfigError(problems)
    return found


def discover(folders: Sequence[Path] = ()) -> Registry:
    """Return ``{name: class}`` for ``regft_core/methods``, the project's own and, optionally, further folders.

    Importing the method files does not import torch.

    Raises:
        ConfigError: a file of the package or of ``folders`` cannot be imported or defines none, two define the same
            name, or a class has a hook that nothing would call or that cannot be called. What is wrong with a file of
            the project or of an installed package stands in ``broken``.
    """
    found = _discover(tuple(Path(folder) for folder in folders), METHODS.state())
    copy = Registry()
    copy.update(found)
    copy.broken |= found.broken
    return copy


def entry_of(cls: type[Regulariser]) -> str:
    """What stands for the file of a class in a fingerprint: its module, or its path where it is none of regft's."""
    module = cls.__module__
    return module if module.startswith("regft_core.") else str(Path(str(sys.modules[module].__file__)).resolve())

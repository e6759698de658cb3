"""Finds the regularisers: every file of ``regft_core/methods``, and of a project's ``methods``, is one of its name.

There is no list to keep up to date, and nothing is imported before it is asked for: a broken file stops nothing that
does not use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType

from regft_core.catalogue import METHODS, shown
from regft_core.errors import ConfigError, Problem
from regft_core.hooks.base import Regulariser
from regft_core.hooks.check_class import class_problems


class Registry(Mapping[str, type[Regulariser]]):
    """Name -> class, loaded when it is first asked for.

    ``registry[name]`` raises KeyError where there is no such file, and ConfigError where the file cannot be imported,
    does not define a regulariser of its name, or the class has a hook that nothing would call or that cannot be called.
    """

    def __init__(self) -> None:
        self._names = METHODS.names()
        self._classes: dict[str, type[Regulariser]] = {}

    def __getitem__(self, name: str) -> type[Regulariser]:
        if name not in self._classes:
            if name not in self._names:
                raise KeyError(name)
            self._classes[name] = _class_of(METHODS.load(name), name)
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def _class_of(module: ModuleType, name: str) -> type[Regulariser]:
    file = shown(module.__file__)
    named = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Regulariser)
        and value.__module__ == module.__name__
        and value.__dict__.get("name")
    ]
    if [cls.name for cls in named] != [name]:
        defined = ", ".join(f"'{cls.name}'" for cls in named) or "none"
        message = f"defines the regularisers {defined}, not one that is called '{name}' like the file"
        hint = "a method is a subclass of regft_core.hooks.base.Regulariser with a 'name'; helpers begin with _"
        raise ConfigError([Problem("no-method-in-file", file, 0, "", message, hint)])
    if problems := list(class_problems(named[0], file)):
        raise ConfigError(problems)
    return named[0]


def discover() -> Registry:
    """Return the regularisers of ``regft_core/methods`` and of the project.

    Raises:
        ConfigError: two files have one name.
    """
    return Registry()

"""Finds the regularisers: every file of ``regft_core/methods``, and of a project's ``methods``, is one of its name.

There is no list to keep up to date, and nothing is imported before it is asked for: a broken file stops nothing that
does not use it. A class is looked at when it is loaded. A misspelled hook would never be called, and the method would
train as plain fine-tuning without a word. An ``Entry`` is such a class with its options.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cache, cached_property
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import ValidationError

from regft_core.catalogue import METHODS, shown
from regft_core.errors import ConfigError, Problem
from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.declare import Declares
from regft_core.hooks.description import Description


class Registry(Mapping[str, type[Regulariser]]):
    """Name -> class, loaded when it is first asked for; ConfigError: two files have one name.

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


class Entry(NamedTuple("Pair", [("cls", type[Regulariser]), ("options", Any)])):
    """A regulariser class with its validated options."""

    @property
    def name(self) -> str:
        return self.cls.name

    @cached_property
    def declares(self) -> Declares:
        return self.cls.declare(self.options)

    @property
    def program(self) -> tuple[str, ...]:
        """The passes of the step program, where the regulariser owns that."""
        return self.declares.passes if implements(self.cls, "backward") else ()


def entries(registry: Mapping[str, type[Regulariser]], regularisers: Sequence[tuple[str, Any]]) -> list[Entry]:
    """Pair each (name, options) of a phase with its class."""
    return [Entry(registry[name], options) for name, options in regularisers]


def active(stack: Sequence[Entry]) -> list[Entry]:
    """The regularisers whose strength is not 0."""
    return [entry for entry in stack if entry.declares.active]


discover = Registry


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
    faults = [*_hooks(named[0])]
    if isinstance(inspect.getattr_static(named[0], "declare"), classmethod):
        faults += _declared(named[0])
    if faults:
        raise ConfigError(
            [Problem(code, file, line, f"{named[0].__name__}{where}", *said) for code, line, where, *said in faults]
        )
    return named[0]


#: Code, line, attribute of the class (with its dot), message, hint.
Fault = tuple[str, int, str, str, str]
#: How alike a public name and a hook must be for the name to count as a misspelling of it.
ALIKE = 0.8
_HOOKS = {name: value for name, value in vars(Regulariser).items() if not name.startswith("_")}
_FIELDS = {field.name: of.__name__ for of in (Description, Declares) for field in fields(of)}
#: Field of ``Declares``, or hook -> groups of hooks that act on it; the class needs one of each group.
_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "passes": (("backward", "terms"),),
    "needs_hidden": (("terms",),),
    "rebuild": (("keep",),),
    "needs": (("prepare",),),
    "owns_weights": (("prepare",), ("export",)),
    "freezes_encoder": (("prepare", "predict"),),
    "fits_decision": (("decision",),),
    "edits": (("edit_weights", "prepare", "fit"),),
}
#: Hook -> field of ``Declares`` without which nothing calls it.
_ASKED_FOR = {"backward": "passes", "build_optimizer": "optimizer", "decision": "fits_decision"}


def _line(function: Any) -> int:
    return function.__code__.co_firstlineno if inspect.isfunction(function) else 0


def _hooks(cls: type[Regulariser]) -> Iterator[Fault]:
    """Public names of a class that are no hooks, and hooks that cannot be called as the stack calls them."""
    for name, value in vars(cls).items():
        function, hook = getattr(value, "__func__", value), _HOOKS.get(name)
        place = _line(function), f".{name}"
        if name in _FIELDS:
            message = f"is a field of {_FIELDS[name]} and no hook, so nothing would read it"
            hint = f"return it from declare: {_FIELDS[name]}({name}=...); a name of your own begins with _"
            yield "field-as-hook", *place, message, hint
        elif name.startswith("_") or not inspect.isfunction(function):
            continue
        elif hook is None:
            if near := get_close_matches(name, _HOOKS, n=1, cutoff=ALIKE):
                hint = f"did you mean '{near[0]}'? a name of your own that is no hook begins with _"
                yield "unknown-hook", *place, "is no hook, so nothing would call it", hint
        else:
            of_class = isinstance(hook, classmethod)
            given, wanted = inspect.signature(function), inspect.signature(getattr(hook, "__func__", hook))
            takes_any = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in given.parameters.values())
            fits = takes_any or len(given.parameters) == len(wanted.parameters)
            if not fits or isinstance(value, classmethod) != of_class:
                written = f"{'@classmethod ' * of_class}def {name}({', '.join(wanted.parameters)})"
                hint = f"write {written}; regft_core/hooks/base.py describes it"
                yield "hook-arguments", *place, "cannot be called as the hook is", hint


def _declared(cls: type[Regulariser]) -> Iterator[Fault]:
    """Options of strength 0 that are none, the first fault of what a class declares; hooks that do not fit it."""
    code, declared = cls.declare.__code__, list[Declares]()
    for options in ({},) if cls.off is None else (cls.off, {}):
        try:
            validated = cls.Config.model_validate(options)
        except ValidationError as error:
            for item in error.errors(include_url=False) if options is cls.off else ():  # others may be required
                where = ".".join(str(part) for part in item["loc"])
                hint = f"options are those of Config: {', '.join(cls.Config.model_fields) or 'none'}"
                yield "invalid-value", 0, ".off", f"{where}: {item['msg']}", hint
            continue
        try:
            declares: Any = cls.declare(validated)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            line = [frame.lineno for frame in frames if frame.filename == code.co_filename][-1] or 0
            hint = "regft_core/hooks/declare.py describes every field of Declares, description.py those of Description"
            yield "bad-declaration", line, ".declare", f"raises {type(error).__name__}: {error}", hint
            return
        if not isinstance(declares, Declares):
            message = f"returns {declares!r} instead of a Declares"
            yield "bad-declaration", code.co_firstlineno, ".declare", message, "write return Declares(...)"
            return
        declared.append(declares)
    for name, groups in _NEEDED.items():
        present = implements(cls, name) if name in _HOOKS else any(getattr(each, name) for each in declared)
        for hooks in groups if present else ():
            if not any(implements(cls, hook) for hook in hooks):
                lacks = " or ".join(hooks)
                hint = f"write {lacks}, or leave {name} out; regft_core/hooks/base.py describes every hook"
                yield "hook-missing", code.co_firstlineno, ".declare", f"has {name}, but no {lacks}", hint
    source = inspect.getsource(cls.declare)
    for hook, name in _ASKED_FOR.items():
        # Some options may declare it: then its name stands in the source.
        if declared and implements(cls, hook) and name not in source and not any(getattr(d, name) for d in declared):
            hint = f"declare it: Declares({name}=...), at strength 0 too; active says whether it acts"
            message = f"is called only where {name} is declared, which it never is"
            yield "hook-undeclared", _line(getattr(cls, hook)), f".{hook}", message, hint

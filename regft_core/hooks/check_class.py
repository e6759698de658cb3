"""Faults of a regulariser's class by itself: names of hooks, how they are called, what it declares.

A misspelled hook would never be called, and the method would train as plain fine-tuning without a word.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from regft_core.errors import Problem
from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.declare import Declares
from regft_core.hooks.description import Description
from regft_core.names import suggestion
from regft_core.schema.sources import source_problem

#: Code, line, attribute of the class (with its dot), message, hint.
Fault = tuple[str, int, str, str, str]
#: How alike a public name and a hook must be for the name to count as a misspelling of it.
ALIKE = 0.8
_HOOKS = {name: value for name, value in vars(Regulariser).items() if not name.startswith("_")}
_FIELDS = {field.name: of.__name__ for of in (Description, Declares) for field in fields(of)}
#: Field of ``Declares`` -> hooks that act on it; a class that declares the field needs one of them.
_NEEDED = (
    ("program", ("backward",)),
    ("adds_terms", ("terms",)),
    ("added_passes", ("terms",)),
    ("needs_hidden", ("terms",)),
    ("owns_prediction", ("predict",)),
    ("keeps_for_inference", ("keep",)),
    ("keeps_for_inference", ("rebuild",)),
    ("needs", ("prepare",)),
    ("owns_weights", ("prepare",)),
    ("owns_weights", ("export",)),
    ("freezes_encoder", ("prepare",)),
    ("reads_finished", ("finish",)),
    ("edits", ("edit_weights", "prepare", "fit")),
)
#: Hook -> field of ``Declares`` without which nothing calls it.
_ASKED_FOR = {
    "backward": "program",
    "terms": "adds_terms",
    "predict": "owns_prediction",
    "rebuild": "keeps_for_inference",
    "build_optimizer": "optimizer",
}


def class_problems(cls: type[Regulariser], file: str) -> Iterator[Problem]:
    """Problems of a class of ``file``, as messages show it; none when it can be called as the stack calls it."""
    for code, line, part, message, hint in (*_hooks(cls), *_strength_zero(cls), *_sources(cls)):
        yield Problem(code, file, line, f"{cls.__name__}{part}", message, hint)
    if isinstance(inspect.getattr_static(cls, "declare"), classmethod):
        for code, line, part, message, hint in _declared(cls):
            yield Problem(code, file, line, f"{cls.__name__}{part}", message, hint)


def _line(function: Any) -> int:
    return function.__code__.co_firstlineno if inspect.isfunction(function) else 0


def _hooks(cls: type[Regulariser]) -> Iterator[Fault]:
    """Public names of a class that are no hooks, and hooks that cannot be called as the stack calls them."""
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        function = getattr(value, "__func__", value)
        line, part = _line(function), f".{name}"
        if name in _FIELDS:
            message = f"is a field of {_FIELDS[name]} and no hook, so nothing would read it"
            hint = f"return it from declare: {_FIELDS[name]}({name}=...); a name of your own begins with _"
            yield "field-as-hook", line, part, message, hint
        elif not inspect.isfunction(function):
            continue
        elif name not in _HOOKS:
            if near := get_close_matches(name, _HOOKS, n=1, cutoff=ALIKE):
                hint = f"did you mean '{near[0]}'? a name of your own that is no hook begins with _"
                yield "unknown-hook", line, part, "is no hook, so nothing would call it", hint
        elif isinstance(value, classmethod) != isinstance(_HOOKS[name], classmethod):
            if isinstance(value, classmethod):
                message, hint = "is called on an instance", "remove @classmethod, and write self first"
            else:
                message, hint = "is asked before any model exists", "write @classmethod above it, and cls first"
            yield "hook-of-class-or-instance", line, part, message, hint
        else:
            given, wanted = _arguments(function), _arguments(getattr(_HOOKS[name], "__func__", _HOOKS[name]))
            if given is not None and wanted is not None and len(given) != len(wanted):
                hint = f"its arguments are ({', '.join(wanted)}); regft_core/hooks/base.py describes them"
                yield "hook-arguments", line, part, f"takes ({', '.join(given)})", hint


def _arguments(function: Any) -> list[str] | None:
    """Names of the arguments of a hook; None where it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


def _strength_zero(cls: type[Regulariser]) -> Iterator[Fault]:
    try:
        cls.Config.model_validate(cls.off) if cls.off is not None else None
    except ValidationError as error:
        for item in error.errors(include_url=False):
            where = ".".join(str(part) for part in item["loc"])
            hint = f"options are those of Config: {', '.join(cls.Config.model_fields) or 'none'}"
            yield "invalid-value", 0, ".off", f"{where}: {item['msg']}", hint


def _sources(cls: type[Regulariser]) -> Iterator[Fault]:
    """Sources that name no option, or that are of no known form; a class may say nothing of where it is from."""
    for option, source in cls.sources.items():
        if option not in cls.Config.model_fields:
            hint = suggestion(option, cls.Config.model_fields, "options of Config")
            yield "unknown-source", 0, ".sources", f"'{option}' is no option of Config", hint
        if wrong := source_problem(source):
            hint = "'paper: section 3.2', 'code: owner/repository file.py:12' or 'ours: the reason'"
            yield "bad-source", 0, ".sources", f"{option}: {wrong}", hint


def _declared(cls: type[Regulariser]) -> Iterator[Fault]:
    """The first thing wrong with what a class declares, by default or at strength 0; then hooks that do not fit it."""
    source = cls.declare.__code__
    declared: list[Declares] = []
    for given in ({}, cls.off or {}):
        try:
            options = cls.Config.model_validate(given)
        except ValidationError:  # required options; those of `off` are told above
            continue
        try:
            found: Any = cls.declare(options)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            line = [frame.lineno for frame in frames if frame.filename == source.co_filename][-1] or 0
            hint = (
                "regft_core/hooks/declare.py describes every field of Declares, says.py beside it those of Description"
            )
            yield "bad-declaration", line, ".declare", f"raises {type(error).__name__}: {error}", hint
            return
        if not isinstance(found, Declares):
            message = f"returns {found!r} instead of a Declares"
            yield "bad-declaration", source.co_firstlineno, ".declare", message, "write return Declares(...)"
            return
        declared.append(found)
    if declared:
        yield from _hooks_declared(cls, declared)


def _hooks_declared(cls: type[Regulariser], declared: list[Declares]) -> Iterator[Fault]:
    """Find what is declared and not implemented, and what is implemented and declared under no options."""
    for name, hooks in _NEEDED:
        if any(getattr(one, name) for one in declared) and not any(implements(cls, hook) for hook in hooks):
            lacks = " or ".join(hooks)
            hint = f"write {lacks}, or leave {name} out; regft_core/hooks/base.py describes every hook"
            message = f"declares {name}, but the class has no {lacks}"
            yield "hook-missing", cls.declare.__code__.co_firstlineno, ".declare", message, hint
    source = inspect.getsource(cls.declare)
    for hook, name in _ASKED_FOR.items():
        # Some options may declare it: then its name stands in the source.
        if implements(cls, hook) and name not in source and not any(getattr(one, name) for one in declared):
            hint = f"declare it: Declares({name}=...), at strength 0 too; active says whether it acts"
            message = f"is called only where {name} is declared, which it never is"
            yield "hook-undeclared", _line(getattr(cls, hook)), f".{hook}", message, hint

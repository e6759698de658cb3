"""Errors in ``task_settings`` and ``method_settings`` that the result of laying does not show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.models.source import encoder_problems
from regft_core.names import suggestion
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.params import Params
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.files import METHODS, find, method_file, missing


def check_layers(builder: MethodBuilder, params: Params, document: Document) -> list[Problem]:
    """Return names that are not listed, arms without a base, and keys that the method's file does not have."""
    problems = []
    for task in params.task_settings:
        if task not in params.grid.tasks:
            hint = suggestion(task, params.grid.tasks, "tasks listed")
            message = f"task '{task}' is not in grid.tasks"
            problems.append(document.problem("not-listed", ("task_settings", task), message, hint))
    places: list[tuple[KeyPath, str]] = [(("method_settings", name), name) for name in params.method_settings]
    for task, settings in params.task_settings.items():
        places += [(("task_settings", task, "methods", name), name) for name in settings.methods]
    for at, name in places:
        if name not in params.methods:
            hint = suggestion(name, params.methods, "methods listed")
            problems.append(document.problem("not-listed", at, f"method '{name}' is not listed under methods", hint))
        problems += _check_layer(builder, document, at, name)
    return problems


def _check_layer(builder: MethodBuilder, document: Document, at: KeyPath, name: str) -> Iterator[Problem]:
    """Yield problems of a base, or regularisers and phases that the file does not have, which are slips."""
    base = builder.base(name)
    if base != name and at[0] == "method_settings":
        if find(builder.root, METHODS, name) is not None:
            message = f"'{name}' has a file of its own, {method_file(name)}, so it needs no base"
            hint = "remove base, or give the method another name"
            yield document.problem("base-not-needed", (*at, "base"), message, hint)
        elif not builder.knows(base):
            yield missing(builder.root, METHODS, base, document, (*at, "base"))
        return
    try:
        file = builder.source(base)
    except ConfigError:
        return  # told where the method is listed
    layer = document.value(at)
    if file is None:
        return
    phases = file.data.get("phases")
    given = layer.get("phases")
    if not isinstance(phases, dict):
        if given:
            hint = "write training and regularisers directly below its name"
            yield document.problem("no-phases", (*at, "phases"), f"method '{name}' has no phases", hint)
            return
        yield from _absent(document, at, name, file.data, layer, builder.base(name) != name)
        return
    for key in ("training", "regularisers"):
        if key in layer:
            message = f"method '{name}' has phases, so {key} belongs to one of them"
            hint = f"write phases: {{finetune: {{{key}: ...}}}}"
            yield document.problem("key-of-a-phase", (*at, key), message, hint)
    for phase, own in given.items() if isinstance(given, dict) else ():
        path = (*at, "phases", phase)
        if phase not in phases:
            hint = suggestion(str(phase), list(phases), "its phases")
            yield document.problem("unknown-phase", path, f"method '{name}' has no phase '{phase}'", hint)
        elif isinstance(own, dict) and isinstance(phases[phase], dict):
            yield from _absent(document, path, name, phases[phase], own, builder.base(name) != name)


def _absent(
    document: Document, at: KeyPath, name: str, file: Mapping[str, Any], layer: Mapping[str, Any], arm: bool
) -> Iterator[Problem]:
    """Yield regularisers of a layer that the file does not have; an ``arm`` with a base may have further ones."""
    there, given = file.get("regularisers") or {}, layer.get("regularisers")
    for regulariser in given if isinstance(given, dict) and not arm else ():
        if regulariser not in there:
            hint = suggestion(str(regulariser), list(there), "it has") if there else "it has none"
            hint += "; another ingredient makes another method: give it a name and base"
            message = f"method '{name}' has no regulariser '{regulariser}' here"
            yield document.problem("regulariser-absent", (*at, "regularisers", regulariser), message, hint)


def check_lengths(
    root: Path, params: Params, shared: Callable[[str], Document], models: Mapping[str, EncoderConfig]
) -> list[Problem]:
    """Return the problems of ``max_length`` of single tasks against what the encoder takes."""
    return [
        shared(task).problem(code, ("model", "max_length"), message)
        for task, model in models.items()
        if model != params.model
        for key, code, message in encoder_problems(model, root)
        if key == "max_length"
    ]

"""Arms are compared only when they ran in one environment and started from one encoder.

A GPU and a CPU, or two thread counts, give other bits and another speed, and another encoder is
another experiment: differences would be of machines or checkpoints, not of methods. Mixed machines
can be marked instead of refused (``report.mixed_environments: mark``); mixed encoders cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.io.canonical import canonical_json
from regft_core.names import plural
from regft_core.report.page.formatting import listed
from regft_core.report.read_grid import BlockData, Run

UNKNOWN = "unknown (the records do not say)"


def described(environment: Any) -> str:
    """One line for people: device and name first, everything else as ``key value``."""
    if not environment:
        return UNKNOWN
    first = [str(environment[key]) for key in ("device", "name") if environment.get(key) not in (None, "")]
    rest = [
        f"{key} {canonical_json(value) if isinstance(value, dict | list) else value}"
        for key, value in sorted(environment.items())
        if key not in ("device", "name")
    ]
    return ", ".join([" ".join(first), *rest] if first else rest)


def environments(block: BlockData) -> dict[str, dict[str, list[int]]]:
    """Return environment -> method -> seeds that ran there, over all phases of training.

    Records without the field count as one environment of their own, the unknown one.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for cell in block.cells.values():
        for run in cell.runs:
            for place in sorted(_places(run)):
                found.setdefault(place, {}).setdefault(cell.method, []).append(run.seed)
    return found


def _places(run: Run) -> set[str]:
    return {described(environment) for environment in run.environments.values()} or {UNKNOWN}


def check(blocks: Sequence[BlockData], mixed: str) -> dict[str, tuple[str, ...]]:
    """Return the marks of blocks whose runs come from several environments: name -> who ran where.

    Args:
        mixed: ``refuse`` or ``mark``, as ``report.mixed_environments`` says.

    Raises:
        ConfigError: a block mixes encoders, or environments while ``mixed`` is ``refuse``.
    """
    problems: list[Problem] = []
    marks: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        problems += _encoders(block)
        places = environments(block)
        if len(places) < 2:
            continue
        lines = tuple(f"{place}: {_who(methods, block)}" for place, methods in places.items())
        marks[block.name] = lines
        if mixed == "refuse":
            message = f"the runs of {block.name} come from {len(places)} environments\n      " + "\n      ".join(lines)
            hint = (
                "train all of them on one machine with one device and thread count (`dvc repro -f finetune` there), "
                "or set report.mixed_environments: mark"
            )
            problems.append(Problem("mixed-environments", "params.yaml", 0, "report.mixed_environments", message, hint))
    if problems:
        raise ConfigError(problems)
    return marks


def _who(methods: dict[str, list[int]], block: BlockData) -> str:
    """``a, b (seeds 0, 1)``: seeds are named for arms of which only some ran there."""
    parts = []
    for method, seeds in methods.items():
        every = [run.seed for run in block.cells[method].runs]
        some = "" if seeds == every else f" ({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))})"
        parts.append(method + some)
    return listed(parts)


def _encoders(block: BlockData) -> list[Problem]:
    found: dict[str, list[str]] = {}
    for cell in block.cells.values():
        if cell.encoder is not None:
            found.setdefault(cell.encoder, []).append(cell.method)
    if len(found) < 2:
        return []
    lines = "\n      ".join(f"{digest[:12]}: {listed(methods)}" for digest, methods in found.items())
    message = f"the methods of {block.name} started from {plural(len(found), 'different encoder')}\n      {lines}"
    hint = "compared methods share the encoder's content: run `dvc repro`, which trains the outdated ones again"
    return [Problem("mixed-encoders", "params.yaml", 0, "model", message, hint)]

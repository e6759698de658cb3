"""How many rows ``max_length`` cut: what the terminal, the page and the list of warnings say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.data import lengths
from regft_core.report.read_grid import BlockData


def warnings(blocks: Sequence[BlockData]) -> tuple[str, ...]:
    """Sets that lost more than a tenth of their rows' ends, with the value to set."""
    return tuple(
        text for task, (found, modes) in _tasks(blocks).items() for text in lengths.warnings(task, found, modes)
    )


def summary(blocks: Sequence[BlockData]) -> tuple[str, ...]:
    """One sentence per task: the share of cut rows of the training split and of the worst evaluation set."""
    texts = []
    for task, (found, modes) in _tasks(blocks).items():
        sets = {name: lengths.in_use(measured, modes) for name, measured in lengths.in_order(found["sets"]).items()}
        train = max(sets["train"].values(), key=lambda one: one["cut"])
        judged = {name: max(one["cut"] for one in readings.values()) for name, readings in sets.items()}
        worst = max((name for name in judged if name != "train"), key=lambda name: judged[name])
        texts.append(
            f"{task}: {lengths.setting(found)} cuts {lengths.share(train['cut'])} of the training rows "
            f"(median {train['median']} tokens, 95% have at most {train['p95']}, longest {train['longest']}) "
            f"and {lengths.share(judged[worst])} of {worst}."
        )
    return tuple(texts)


def rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lines of the page's table: one per set and way of reading."""
    return [
        {"set": name, "pairs": mode if "separately" in measured else "", "share": lengths.share(measured[mode]["cut"])}
        | {"rows": measured["rows"], "measured": measured["measured"]}
        | dict(measured[mode])
        for name, measured in lengths.in_order(found["sets"]).items()
        for mode in ("jointly", "separately")
        if mode in measured
    ]


def _tasks(blocks: Sequence[BlockData]) -> dict[str, tuple[Mapping[str, Any], list[str]]]:
    """Task -> its lengths, and how the methods of all its blocks read pairs."""
    found: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for block in blocks:
        modes = found[block.task][1] if block.task in found else []
        found[block.task] = (block.lengths, list(dict.fromkeys([*modes, *block.modes])))
    return found

"""Refusals of a phase after those before it: what it takes from them, which they do not give; no torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.phase_entries import Entry, active, entries
from regft_core.kinds import find
from regft_core.schema.method import Method, Phase
from regft_core.schema.tasks import TaskConfig


def earlier_problems(
    registry: Mapping[str, type[Regulariser]], method: Method, phase: Phase, stack: Sequence[Entry]
) -> list[str]:
    """Errors of a phase after those before it: nothing is handed over, or an anchor was drawn anew."""
    acting = {one.name: active(entries(registry, one.regularisers)) for one in method.phases}
    problems = [
        f"'{entry.name}' takes what the phase '{needed}' has learned, and no regulariser there hands anything over; "
        "name another phase, or add such a regulariser to it"
        for entry in active(stack)
        for needed, what in ((phase.here(name), what) for name, what in entry.declares.needs.items())
        if what == "state" and needed in acting and not any(implements(one.cls, "hand") for one in acting[needed])
    ]
    anchored = [entry.name for entry in active(stack) if "checkpoint" in entry.declares.anchors]
    start = phase.start
    while anchored and start in acting:
        for entry in acting[start]:
            if entry.declares.draws_anew:
                problems += [
                    f"'{name}' pulls toward the checkpoint, but '{entry.name}' in the phase '{start}' drew tensors "
                    "anew, which would be pulled back; pull toward the start of the phase, or start from the checkpoint"
                    for name in anchored
                ]
        start = method.phase(start).start
    return problems


def answers_problems(
    registry: Mapping[str, type[Regulariser]],
    method: Method,
    phase: Phase,
    task: TaskConfig | None,
    tasks: Mapping[str, TaskConfig],
) -> list[str]:
    """Errors of a phase that learns answers of an earlier one: that has none, or for other labels."""
    problems, own = list[str](), task_of(phase, task, tasks)
    for teacher in map(method.phase, phase.teachers(registry)):
        says, other = f"it learns the answers of the phase '{teacher.name}', ", task_of(teacher, task, tasks)
        if not (teacher.data.labels or teacher.teachers(registry)):
            problems.append(f"{says}which learns none; remove 'labels: false' there")
        problems += [
            f"{says}whose weights do not answer without '{entry.name}'; leave that out there"
            for entry in active(entries(registry, teacher.regularisers))
            if implements(entry.cls, "rebuild")
            or entry.declares.answers_at_mask
            or entry.declares.hands_over != "folded"
        ]
        if own is None or other is None:
            continue
        if (own.kind, own.labels) != (other.kind, other.labels):
            problems.append(f"{says}which are for other labels than those of its rows; give both one 'data.task'")
        if not (phase.data.labels or find(own.kind).has_labels):
            problems.append(f"{says}which are values, so it needs those of its rows, too; remove 'labels: false'")
    return problems


def task_of(phase: Phase, task: TaskConfig | None, tasks: Mapping[str, TaskConfig]) -> TaskConfig | None:
    """The task whose rows a phase trains on: its own, None where ``tasks`` lacks it, else the cell's ``task``."""
    return task if phase.data.task is None else tasks.get(phase.data.task)

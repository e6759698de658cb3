"""Downloads of a project: the encoder and the rows of every set, what of them is missing, and how it is fetched.

Each thing is fetched complete or not at all, so a fetch can be run again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regft_core.data.hub import fetch_split, is_fetched
from regft_core.data.prepare import resolve_ood
from regft_core.data.sources import Source
from regft_core.errors import DataError, RegftError, RunFailed, StoreError
from regft_core.evaluate.analyses import tasks_read
from regft_core.grid.step_time import encoder_weights
from regft_core.models.hub import hub_encoder
from regft_core.models.source import encoder_present
from regft_core.names import gigabytes, plural
from regft_core.schema.method import other_tasks
from regft_core.schema.tasks import FilesSource, HubSource
from regft_core.settings.checks.params import moves
from regft_core.settings.files import task_file
from regft_core.settings.papers.public_sizes import ENCODER_MILLIONS
from regft_core.settings.project import Project

#: Bytes of a weight in fp32.
_WEIGHT = 4
#: Codes of errors that stop every later download as well: the first one ends the fetch.
_ENDS = ("hub-unreachable", "disk-full")


@dataclass(frozen=True)
class Rows:
    """A split that something reads: ``used`` says by what. ``absent_file`` must be placed by hand."""

    source: Source
    split: str
    used: tuple[str, ...]
    present: bool
    absent_file: bool = False

    @property
    def where(self) -> str:
        """Source and revision, in words."""
        if not isinstance(self.source, HubSource):
            return f"data/{self.split}" if isinstance(self.source, FilesSource) else "built in"
        moving = " (moving: no commit is pinned)" if moves(self.source.revision) else ""
        named = "/".join(filter(None, [self.source.id, self.source.config]))
        revision = self.source.revision if moving else self.source.revision[:12]
        return f"{named} at {revision}{moving}, split {self.split}"


def rows_needed(project: Project) -> list[Rows]:
    """Every split that training and judging read, each once, in the order of the grid."""
    used: dict[tuple[str, str], tuple[Source, list[str]]] = {}

    def add(source: Source, split: str, by: str) -> None:
        names = used.setdefault((source.model_dump_json(), split), (source, []))[1]
        names.append(by) if by not in names else None

    trained = other_tasks(project.methods.values())
    for name in dict.fromkeys([*project.params.grid.tasks, *trained, *tasks_read(project.params)]):
        task = project.tasks[name]
        for split in (task.splits.train, task.splits.dev):
            if isinstance(split, str):  # else it is drawn from the training rows
                add(task.source, split, name)
        for judge in task.ood if name in project.params.grid.tasks else ():
            ood = resolve_ood(name, judge, project.tasks)
            add(ood.source, ood.split, f"{judge} (judges {name})")
    # A project is only valid when the files that it must have are there.
    return [
        Rows(source, split, tuple(by), not isinstance(source, HubSource) or is_fetched(project.root, source, split))
        for (_, split), (source, by) in used.items()
    ]


def by_hand(project: Project) -> list[str]:
    """Files that judge as soon as somebody puts them there, and where they can be had."""
    return [
        f"{judge} (judges {task}): {out.why}; {_had(project, judge)}"
        for task, sets in project.left_out.items()
        for judge, out in sets.items()
        if out.file is not None
    ]


def _had(project: Project, judge: str) -> str:
    source = project.tasks[judge].source if judge in project.tasks else None
    get = source.get if isinstance(source, FilesSource) else None
    return get or f"{task_file(judge)} says how to make it"


def require_named_sets(project: Project) -> None:
    """Raise DataError, with every file at once, where ``ood`` names a set whose file is not there."""
    lacking = [] if isinstance(project.params.ood, str) else by_hand(project)
    if lacking:
        listed = "".join(f"\n  {text}" for text in lacking)
        hint = "put the files there, or take the sets out of ood"
        raise DataError("file-missing", f"ood names sets whose files are not there:{listed}\n    -> {hint}")


def encoder_bytes(project: Project) -> int | None:
    """About how many bytes the encoder's weights have in fp32; None when nothing tells."""
    name = project.params.model.name
    if name in ENCODER_MILLIONS:
        return ENCODER_MILLIONS[name] * 1_000_000 * _WEIGHT
    layers = encoder_weights(name, project.root)
    return None if layers is None else int(layers * 1.3 * _WEIGHT)


def encoder_place() -> Path:
    """Where the hub's client keeps what it downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def free_bytes(path: Path) -> int:
    """Bytes that are free where ``path`` is, or will be."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    return shutil.disk_usage(there).free


def fetch_all(project: Project, say: Callable[[str], None] = print) -> None:
    """Fetch every split, then the encoder, that is not on this disk; list what must be placed by hand.

    Raises:
        DataError, ModelError: the hub cannot be reached.
        StoreError: the disk is full, or has too little room for the encoder.
        RunFailed: single things that could not be fetched (a wrong revision), all of them; the others are there.
    """
    problems: list[str] = []
    fetched = 0

    def attempt(what: str, fetch: Callable[[], object]) -> None:
        nonlocal fetched
        say(f"fetching {what}")
        try:
            fetch()
            fetched += 1
        except RegftError as error:
            if isinstance(error, StoreError) or error.code in _ENDS:
                raise
            problems.append(str(error))

    def rows(source: HubSource, split: str, by: str) -> Callable[[], object]:
        return lambda: fetch_split(project.root, source, split, by)

    for text in by_hand(project):  # first: the fetch may end early
        say(f"by hand: {text}")
    for one in rows_needed(project):
        if isinstance(one.source, HubSource) and not one.present:
            attempt(f"{', '.join(one.used)}: {one.where}", rows(one.source, one.split, ", ".join(one.used)))
    model = project.params.model
    if not encoder_present(model, project.root):
        revision = model.revision or ""
        attempt(f"encoder {model.name} at {revision}", lambda: _fetch_encoder(project, model.name, revision))
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise RunFailed(
            "not-fetched",
            f"{plural(len(problems), 'thing')} could not be fetched:\n{listed}\n"
            "    -> correct what the lines name, then run `regft fetch` again: what is complete stays",
        )
    say(f"fetched {plural(fetched, 'thing')}; everything that can be fetched is on this disk")


def _fetch_encoder(project: Project, name: str, revision: str) -> Path:
    need, free = encoder_bytes(project), free_bytes(encoder_place())
    if need is not None and need > free:
        raise StoreError(
            "disk-full",
            f"encoder {name} needs about {gigabytes(need)}, and {encoder_place()} has {gigabytes(free)} free\n    -> "
            "free some space, or set HF_HUB_CACHE to a folder with room; what is fetched stays",
        )
    return hub_encoder(name, revision, project.root)[0]

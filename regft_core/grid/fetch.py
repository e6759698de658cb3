"""Bring what a project needs onto this disk: rows and encoder, each complete or not at all, so it can be run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regft_core.data.hub import fetch_split
from regft_core.errors import RegftError, RunFailed, StoreError
from regft_core.grid.needs import by_hand, encoder_bytes, encoder_place, free_bytes, rows_needed
from regft_core.models.hub import hub_encoder
from regft_core.models.source import encoder_present
from regft_core.names import gigabytes, plural
from regft_core.schema.tasks import HubSource
from regft_core.settings.project import Project

#: Codes of errors that stop every later download as well: the first one ends the fetch.
_ENDS = ("hub-unreachable", "disk-full")


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

"""Identify encoders: which one a name, an alias or a local directory is, and what it was trained on since pretraining.

Two spellings are one encoder when they lead to the same hub id and to the same labelled tasks in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from regft_core import shipped
from regft_core.models.fetch import ALIASES
from regft_core.schema import Name, SomeItems, StrictModel
from regft_core.settings.document import load_yaml
from regft_core.settings.validate import validated
from regft_core.settings.yaml_paths import CONTAMINATION

#: At the end of a checkpoint's name, in any case of letters: it was fine-tuned on this task.
_TUNED = "-mnli"
#: A snapshot in the hub's cache: ``models--FacebookAI--roberta-large/snapshots/<commit>``.
_SNAPSHOT = re.compile(r"(?:^|[/\\])models--([^/\\]+?)--([^/\\]+)[/\\]snapshots[/\\]")
#: Of a ``config.json``: where its weights came from, and what they were trained on.
_FACTS = ("_name_or_path", "architectures", "finetuning_task")
#: What a classifier was trained on when its configuration does not say.
UNNAMED = "a task that its configuration does not name"


@dataclass(frozen=True)
class Encoder:
    """One encoder: its hub id, with or without the organisation, or the path of a directory that names no origin."""

    name: str
    #: Labelled tasks between pretraining and the run, in order.
    trained_on: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.name.rstrip("/").rpartition("/")[2] + "".join(f", tuned on {task}" for task in self.trained_on)

    def after(self, *tasks: str) -> Encoder:
        """The encoder once it was trained on ``tasks``, too."""
        return Encoder(self.name, (*self.trained_on, *tasks))

    def same(self, other: Encoder) -> bool:
        """Whether both are the same start; a name without an organisation is that of any organisation."""
        one, two = self.name.casefold(), other.name.casefold()
        same = one == two if "/" in one and "/" in two else one.rpartition("/")[2] == two.rpartition("/")[2]
        return same and self.trained_on == other.trained_on


def named(name: str) -> Encoder:
    """Return the encoder of an alias or a hub id."""
    full = ALIASES[name].hub if name in ALIASES else name
    return Encoder(full[: -len(_TUNED)], ("mnli",)) if full.casefold().endswith(_TUNED) else Encoder(full)


def in_directory(path: str, config: Mapping[str, Any]) -> Encoder:
    """The encoder in a local directory: of its place in the hub's cache, or of the origin in its ``config.json``.

    A classifier was trained on something in between; a directory without an origin is an encoder of its own.
    """
    snapshot = _SNAPSHOT.search(path)
    if snapshot:
        return named("/".join(snapshot.groups()))
    origin, task = config.get("_name_or_path"), config.get("finetuning_task")
    classifies = any(str(one).endswith("ForSequenceClassification") for one in config.get("architectures") or ())
    between = (str(task).casefold(),) if task else (UNNAMED,) if classifies else ()
    found = named(str(origin)) if origin else Encoder(path if "/" in path else f"./{path}")
    return Encoder(found.name, found.trained_on or between)


def facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a ``config.json`` what ``in_directory`` reads; manifests keep it, for the directory may be gone."""
    return {name: config[name] for name in _FACTS if config.get(name) is not None}


def between_phases(phases: Mapping[str, Mapping[str, Any]], task: str) -> tuple[str, ...]:
    """Labelled tasks other than ``task`` on which the encoder is trained before the last of the ``phases``."""
    trained: dict[str, tuple[str, ...]] = {"checkpoint": ()}
    for name, phase in phases.items():
        other = phase["data"]["task"] if phase["data"]["labels"] else None
        trained[name] = (*trained[phase["start"]], *([other] if other not in (None, task) else []))
    return list(trained.values())[-1]


class SeenConfig(StrictModel):
    encoders: SomeItems[str]
    source: str = Field(min_length=1, description="who says so")
    tasks: dict[Name, str] = Field(min_length=1, description="task -> the data set as the source calls it")


class Contamination(StrictModel):
    """The whole file: what is known of the encoders' training data."""

    trained_on: dict[Name, SeenConfig] = Field(default_factory=dict)

    def of(self, encoder: str, names: Iterable[str]) -> dict[str, str]:
        """Tasks or sets among ``names`` that ``encoder`` (``model.name``) has seen -> as what, and who says so."""
        entries = [entry for entry in self.trained_on.values() if encoder in entry.encoders]
        first = {name: next((e for e in entries if name in e.tasks), None) for name in names}
        return {name: f"{entry.tasks[name]} ({entry.source})" for name, entry in first.items() if entry is not None}

    def sentences(self, encoder: str, task: str, sets: Iterable[str]) -> Iterator[str]:
        """Yield warnings about ``task``, which is evaluated on ``sets``; nothing where the encoder saw none of them."""
        others = [name for name in sets if name != task]
        for name, seen in self.of(encoder, [task, *others]).items():
            if name == task:
                yield f"{encoder} was trained on {seen}: scores on {task} are not those of few labels alone"
            else:
                yield (
                    f"{encoder} was trained on {seen}: for it the set {name}, which judges {task}, is not out of "
                    "distribution"
                )


def read_contamination(root: Path) -> Contamination:
    """Read the table that the package ships, and over it the project's, where there is one. Raises ConfigError."""
    trained_on: dict[str, SeenConfig] = {}
    for path in (shipped.FOLDER / CONTAMINATION, Path(root) / CONTAMINATION):
        if path.is_file():
            trained_on |= validated(Contamination, load_yaml(path, Path(root))).trained_on
    return Contamination(trained_on=trained_on)

"""Which tasks an encoder has seen before: ``pipelines/contamination.yaml``, read for validation, report, tracker.

A fact about an encoder changes no number of any run, so it is no part of a run's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from regft_core import shipped
from regft_core.errors import ConfigError
from regft_core.schema import Name, StrictModel
from regft_core.settings.document import load_yaml
from regft_core.settings.files import CONTAMINATION
from regft_core.settings.validate import validate


class SeenConfig(StrictModel):
    """Training data of some encoders."""

    encoders: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
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


def read_contamination(root: Path) -> Contamination:
    """Read the table that the package ships, and over it that of the project at ``root``, where there is one.

    Raises ConfigError when a file is wrong.
    """
    trained_on: dict[str, SeenConfig] = {}
    for path in (shipped.FOLDER / CONTAMINATION, Path(root) / CONTAMINATION):
        if path.is_file():
            table, problems = validate(Contamination, load_yaml(path, Path(root)))
            if table is None:
                raise ConfigError(problems)
            trained_on |= table.trained_on
    return Contamination(trained_on=trained_on)


def sentences(encoder: str, task: str, seen: Mapping[str, str], sets: Iterable[str]) -> list[str]:
    """Return warnings about ``task``, which is evaluated on ``sets``; nothing where the encoder saw none of them."""
    found = []
    if task in seen:
        found.append(f"{encoder} was trained on {seen[task]}: scores on {task} are not those of few labels alone")
    for name in sets:
        if name in seen and name != task:
            found.append(
                f"{encoder} was trained on {seen[name]}: for it the set {name}, which judges {task}, is not out of "
                "distribution"
            )
    return found

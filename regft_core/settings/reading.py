"""What reading a project has come to so far: its files, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regft_core.errors import ConfigError, Problem
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.files import missing, read


@dataclass
class Reading:
    """Grows while a project is read.

    Attributes:
        root: project root.
        documents: file, relative to it -> what it holds, for every file that was read.
        problems: everything that is wrong.
        warnings: what the user should know although it is right.
    """

    root: Path
    documents: dict[str, Document] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, problems: Iterable[Problem], warnings: Iterable[str] = ()) -> None:
        """Add what a check found."""
        self.problems += problems
        self.warnings += warnings

    def read(self, folder: str, name: str, place: Document, path: KeyPath) -> Document | None:
        """The YAML file of a name, which ``place`` gives at ``path``; None, and a problem, when it cannot be read."""
        try:
            document = read(self.root, folder, name)
        except ConfigError as error:
            self.problems += error.problems
            return None
        if document is None:
            self.problems.append(missing(self.root, folder, name, place, path))
            return None
        self.documents[f"{folder}/{name}.yaml"] = document
        return document

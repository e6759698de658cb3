"""From the grid to its cells: every method on every task at every training size."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

from regft_core.schema.method import is_name
from regft_core.settings.layers import sizes_of

if TYPE_CHECKING:
    from regft_core.settings.project import Project

SizeName = int | Literal["full"]


@dataclass(frozen=True, order=True)
class Cell:
    """One method on one task at one training size; all seeds belong to it.

    A stage writes a folder for each cell; results are compared cell by cell.

    Raises ValueError for names outside ``[a-z0-9_-]``: they become paths and shell words.
    """

    method: str
    task: str
    size: SizeName

    def __post_init__(self) -> None:
        for name in (self.method, self.task):
            if not is_name(name):
                raise ValueError(f"'{name}' is not a name of a method or task: use a-z, 0-9, _ and -")
        parse_size(self.size)

    @property
    def directory(self) -> str:
        """``method/task/size``, the cell's place below ``work/<stage>/``."""
        return f"{self.method}/{self.task}/{self.size}"


def parse_size(text: str | int) -> SizeName:
    """Read a training size from a command line (``"300"``, ``"full"``); raises ValueError."""
    if text == "full":
        return "full"
    plain = str(text)
    if isinstance(text, bool) or not (plain.isascii() and plain.isdigit()) or int(plain) < 2 or plain[0] == "0":
        raise ValueError(f"size '{text}' is neither 'full' nor a whole number of at least 2")
    return int(plain)


def cells(project: Project) -> list[Cell]:
    """All cells, in the order of ``params.yaml``: methods, then tasks, then sizes."""
    params = project.params
    pairs = product(project.methods, params.grid.tasks)
    return [Cell(method, task, size) for method, task in pairs for size in sizes_of(params, task)]

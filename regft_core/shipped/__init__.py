"""Files of the package besides code: tasks, methods, presets, published tables, the files of a new project.

In the repository these are links to the files at its top, so there is one text of each; a wheel holds copies.
The folder is a package of its own, so that its files count as data of no module above it (``runs/code.py``).
"""

from __future__ import annotations

from pathlib import Path

#: A project's folders as the package ships them: ``pipelines``, ``published``.
FOLDER = Path(__file__).resolve().parent
#: Name in a project -> the file that a new project starts with.
PROJECT = {
    "params.yaml": FOLDER / "project" / "params.yaml.txt",
    "dvc.yaml": FOLDER / "project" / "dvc.yaml.txt",
    ".dvcignore": FOLDER / "project" / "dvcignore.txt",
    ".gitignore": FOLDER / "project" / "gitignore.txt",
}

"""Contents of a wheel: the package, the name that people import, and every file that the repository ships.

python tests/wheel/contents.py WHEEL REPOSITORY
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

SHIPPED = ("pipelines", "published", "stages")


def lacking(wheel: Path, repository: Path) -> list[str]:
    """What is wrong with the wheel, in words."""
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    found = [] if tops == {"regft", "regft_core"} else [f"top-level packages are {sorted(tops)}"]
    for folder in SHIPPED:
        home = "regft_core" if folder == "stages" else "regft_core/shipped"
        for path in sorted((repository / folder).rglob("*")):
            wanted = f"{home}/{path.relative_to(repository).as_posix()}"
            if path.suffix in (".yaml", ".py") and wanted not in names:
                found.append(f"{wanted} is missing")
    return found


if __name__ == "__main__":
    problems = lacking(Path(sys.argv[1]), Path(sys.argv[2]))
    print("\n".join(problems) or f"{Path(sys.argv[1]).name} is whole")
    sys.exit(bool(problems))

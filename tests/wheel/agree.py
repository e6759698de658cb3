"""Whether a column of one CSV is that of another. python tests/wheel/agree.py FILE COLUMN FILE COLUMN SHARE"""

from __future__ import annotations

import csv
import sys


def column(path: str, name: str) -> list[str]:
    with open(path, newline="", encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


one, other, least = column(*sys.argv[1:3]), column(*sys.argv[3:5]), float(sys.argv[5])
alike = sum(a == b for a, b in zip(one, other, strict=True))
print(f"{alike} of {len(one)} rows of {sys.argv[3]} are as in {sys.argv[1]}; {least:.0%} or more are wanted")
sys.exit(not one or alike < least * len(one))

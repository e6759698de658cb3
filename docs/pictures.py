"""The pictures of the README: the first screens of a project's report and leaderboard.

    python docs/pictures.py PROJECT [--browser chromium]

Reads ``reports/report.html`` and ``reports/leaderboard.txt`` of a finished project and writes ``docs/report.png`` and
``docs/terminal.png``. Needs Chromium or Chrome.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
LINES = 32


def photograph(browser: str, page: Path, picture: Path, width: int, height: int) -> None:
    """Take the first screen of ``page``, in pixels."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={picture}"]
        subprocess.run([*command, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)
    if not picture.is_file():
        raise SystemExit(f"{browser} made no {picture}")


def terminal(text: str, page: Path) -> tuple[int, int]:
    """Write a page that looks like a terminal with the first lines of ``text``; returns its size in pixels."""
    lines = text.splitlines()[:LINES]
    columns = max(map(len, lines))
    with page.with_suffix(".txt").open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=columns, file=nowhere)
        console.print(Text("\n".join(lines)), soft_wrap=False)
    page.write_text(console.export_html(inline_styles=True, code_format=PAGE), encoding="utf-8")
    return 8 * columns + 32, 18 * len(lines) + 32


PAGE = """<!doctype html><meta charset="utf-8"><body style="margin: 0; background: #16191d; color: #dfe3e8">
<pre style="margin: 16px; font: 13px/18px 'DejaVu Sans Mono', monospace">{code}</pre></body>"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("project", type=Path)
    parser.add_argument("--browser", default="chromium")
    given = parser.parse_args()
    reports = given.project / "reports"
    photograph(given.browser, reports / "report.html", HERE / "report.png", 1280, 900)
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "terminal.html"
        size = terminal((reports / "leaderboard.txt").read_text(encoding="utf-8"), page)
        photograph(given.browser, page, HERE / "terminal.png", *size)


if __name__ == "__main__":
    main()

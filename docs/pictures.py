"""All pictures of the documents: the first screens of a finished project's report, leaderboard and MLflow page.

    python benchmarks/table.py keep PROJECT main_job --about "..."   # the scores that the pictures show
    cd PROJECT && python DOCS/pictures.py [--browser chromium]

Reads ``reports/`` and the MLflow database of the project. Writes ``docs/*.png``, beside this file, and the hashes of
the stored scores and of each picture in ``pictures.json``, which a test compares. Needs Chromium or Chrome.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
SCORES = HERE.parent / "benchmarks" / "results" / "main_job.json"
LINES = 32
PORT = 5077


def photograph(
    browser: Browser, page: str, picture: Path, width: int, height: int, ready: Callable[[Page], None] | None = None
) -> None:
    """Take the first screen of the address ``page``, in pixels, once ``ready`` has returned."""
    with browser.new_page(viewport={"width": width, "height": height}) as tab:
        tab.goto(page, wait_until="load" if ready else "networkidle")  # MLflow's page asks the server again and again
        if ready is not None:
            ready(tab)
        tab.screenshot(path=picture)


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


def runs_alone(tab: Page) -> None:
    """Close MLflow's assistant, and wait for the table of runs."""
    tab.locator('[data-component-id="mlflow.assistant.chat_panel.close"]').click()
    tab.get_by_role("link", name="report", exact=True).wait_for()
    tab.wait_for_timeout(3_000)  # columns are filled in after it


def mlflow(browser: Browser, picture: Path) -> None:
    """Take the saved view of the project's runs, as ``regft ui`` serves it."""
    command = [sys.executable, "-m", "regft_core", "ui", "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            lines = iter(server.stdout.readline, "")
            address = next(word for line in lines for word in line.split() if f":{PORT}/" in word)
            photograph(browser, address, picture, 1440, 700, runs_alone)
        finally:
            server.terminate()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--browser", default="chromium")
    given = parser.parse_args()
    reports = Path("reports").resolve()
    with sync_playwright() as started, tempfile.TemporaryDirectory() as scratch:
        browser = started.chromium.launch(executable_path=shutil.which(given.browser), args=["--no-sandbox"])
        photograph(browser, (reports / "report.html").as_uri(), HERE / "report.png", 1280, 900)
        page = Path(scratch) / "terminal.html"
        size = terminal((reports / "leaderboard.txt").read_text(encoding="utf-8"), page)
        photograph(browser, page.as_uri(), HERE / "terminal.png", *size)
        mlflow(browser, HERE / "mlflow.png")
    pictures = {path.name: digest(path) for path in sorted(HERE.glob("*.png"))}
    record = {"scores": digest(SCORES), "pictures": pictures}
    (HERE / "pictures.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

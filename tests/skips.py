"""Why tests may be skipped: ``pytest --allowed-skips quick`` fails when one is skipped for another reason.

A skip hides what it was to prove. `allowed_skips.yaml` lists reasons, each a regular expression for its beginning.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path(__file__).with_name("allowed_skips.yaml")


def needs(package: str, extra: str) -> Any:
    """Import a package of an extra of pyproject.toml, or skip the test (in a module: its tests), with one wording."""
    return pytest.importorskip(package, reason=f"the extra '{extra}' is not installed: there is no {package}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--allowed-skips", choices=("quick", "full"), help=f"fail when a test is skipped for a reason that {FILE} lacks"
    )


def refused(reports: list[Any], kind: str) -> list[str]:
    """``test: reason`` of each skip that nothing allows, in a quick run or in a full one."""
    listed = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    allowed = re.compile("|".join(listed["always"] + (listed["quick"] if kind == "quick" else [])))
    reasons = [(report.nodeid, report.longrepr[2].removeprefix("Skipped: ")) for report in reports]
    return [f"{test}: {reason}" for test, reason in reasons if not allowed.match(reason)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    kind, reporter = session.config.option.allowed_skips, session.config.pluginmanager.get_plugin("terminalreporter")
    if kind is None or reporter is None:  # a worker of pytest-xdist reports to the process that started it
        return
    if found := refused(reporter.stats.get("skipped", []), kind):
        reporter.section("skips that nothing allows", red=True)
        for line in found:
            reporter.line(line)
        reporter.line(f"-> run these tests, do not collect them, or add the reason to {FILE}")
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

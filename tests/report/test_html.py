"""The page stands alone, is escaped, and shows the numbers of ``results.json``."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from regft_core.report.page import formatting

VOID = {"meta", "br", "link", "img", "hr", "input", "wbr"}


class Page(HTMLParser):
    """Checks nesting; collects addresses, identifiers and the cells of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.references: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.stack.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action", "data", "srcset"):
                self.references.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.stack or self.stack[-1] not in ("script", "style"):
            self.text.append(data)


@pytest.fixture(scope="module")
def page(built: Any) -> Page:
    return Page(built.report.html)


def test_page_is_well_formed(page: Page) -> None:
    assert page.stack == []
    assert len(page.ids) == len(set(page.ids))


def test_nothing_outside_is_referred_to(built: Any, page: Page) -> None:
    assert page.references
    assert all(value.startswith("#") for _, _, value in page.references)
    assert {value[1:] for _, _, value in page.references} <= set(page.ids)
    assert not re.search(r"https?:|//\w|@import|url\((?!#)", built.report.html.replace("data:", ""))


def test_text_from_files_is_escaped(built: Any, page: Page) -> None:
    source, shown = built.report.html, "".join(page.text)
    for hostile in ("<script>alert", "<b>fine</b>", "<keeps>"):
        assert hostile not in source
    assert "loss became NaN <script>alert('x')</script> & \"more\"" in shown
    assert "bf16 <keeps> nothing" in shown


def test_leaderboard_shows_the_numbers_of_the_metrics_file(built: Any) -> None:
    metrics = json.loads((built.root / "reports" / "results.json").read_text())
    assert set(metrics) == {"sst2-300", "sick-300"}
    boards = dict(re.findall(r'<div class="board" id="board-([\w-]+)">(.*?)</table>', built.report.html, re.DOTALL))
    for name, methods in metrics.items():
        rows = re.findall(r'<tr[^>]* data-name="([\w-]+)">(.*?)</tr>', boards[name], re.DOTALL)
        assert {method for method, _ in rows} == set(methods)
        primary = "accuracy" if name == "sst2-300" else "pearson"
        means = [methods[method]["dev"][primary]["mean"] for method, _ in rows]
        assert means == sorted(means, reverse=True)
        for method, row in rows:
            numbers = methods[method]
            wanted = numbers["dev"][primary]
            value, shown, bounds = re.findall(
                r'<td class="n dev" data-value="([^"]*)">(\S+) <span class="ci">([^<]*)<', row
            )[0]
            assert (float(value), shown) == (wanted["mean"], formatting.score(wanted["mean"], primary))
            assert html.unescape(bounds) == formatting.interval((wanted["low"], wanted["high"]), primary)
            for other in (key for key in ("contrast",) if key in numbers):
                assert f'data-value="{numbers[other][primary]["mean"]!r}"' in row
            ratio = numbers["cost_ratio"]["measured"]
            assert f'data-value="{ratio!r}">{ratio:.2f}×' in row
            for role in ("reference", "control"):
                if f"verdict_{role}" in numbers:
                    assert f'title="{numbers[f"verdict_{role}"]}: ' in row, (method, role)


def test_same_input_same_bytes(built: Any) -> None:
    report = built.again(out=Path("second"), training=None)
    again = built.again(out=Path("second"), training=None)
    assert report.html == again.html


def test_one_seed_has_no_interval(make: Any, synthetic: Any) -> None:
    built = make({"vanilla": synthetic.Arm(), "a": synthetic.Arm(0.9)}, {"sst2": synthetic.Task(n=50)}, [0], ["full"])
    found = built.report.results["sst2-full"]["a"]
    assert found["dev"]["accuracy"]["low"] is None
    assert found["versus_reference"]["vanilla"]["dev"]["high"] is None
    assert '<span class="ci">n/a</span>' in built.report.html
    assert "sst2 at full size" in built.report.html

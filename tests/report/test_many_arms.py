"""A page of sixty arms: sorted, small, and nothing wider than the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

VOID = {"meta", "br", "link"}


class Tables(HTMLParser):
    """For every table, the elements that hold it, with their classes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.found: list[list[tuple[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.found.append(list(self.open))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            self.open.pop()


@pytest.fixture(scope="module")
def many(make: Any, synthetic: Any) -> Any:
    arms = {"vanilla": synthetic.Arm(0.7, curves=False)}
    for i, root in enumerate(("hype_n", "tdt", "pats", "weight_mixup", "mask_tuning", "r_drop")):
        arms[root] = synthetic.Arm(0.62 + 0.05 * i, curves=False)
        for j in range(8):
            arms[f"{root}_variant-{j}"] = synthetic.Arm(0.6 + 0.04 * j, curves=False)
        arms[f"{'adamax' if root == 'pats' else 'no_' + root}"] = synthetic.Arm(0.65, control_for=root, curves=False)
    return make(arms, {"sst2": synthetic.Task(n=50)}, [0, 1])


def section(built: Any) -> str:
    found = re.search(r'<section id="block-sst2-300">(.*?)</section>', built.report.html, re.DOTALL)
    assert found is not None
    return found[1]


def lines(built: Any) -> list[tuple[str, str]]:
    """(method, cells) of the leaderboard."""
    board = re.search(r'id="board-sst2-300">(.*?)</table>', built.report.html, re.DOTALL)
    assert board is not None
    return re.findall(r'<tr[^>]* data-name="([^"]+)">(.*?)</tr>', board[1], re.DOTALL)


def test_the_leaderboard_has_a_line_per_method_and_the_page_stays_small(many: Any) -> None:
    found = lines(many)
    assert len(found) == len({name for name, _ in found}) == len(many.methods) == 61
    means = [float(re.findall(r'class="n dev" data-value="([^"]+)"', cells)[0]) for _, cells in found]
    assert means == sorted(means, reverse=True)
    ranks = [int(re.findall(r'^<td class="n" data-value="(\d+)"', cells)[0]) for _, cells in found]
    assert ranks == [1 + means.index(mean) for mean in means]
    assert len(many.report.html.encode()) < 1_000_000


def test_every_table_scrolls_inside_the_page(many: Any, built: Any) -> None:
    for page in (many, built):
        tables = Tables(page.report.html).found
        assert len(tables) > 5
        assert all(("div", "scroll") in ancestors for ancestors in tables)
        assert page.report.html.count('<div class="scroll" tabindex="0">') == len(tables)  # keyboards scroll too
    style = many.report.html.split("</style>")[0]
    assert re.search(r"\.scroll \{ overflow: auto; max-height: \d+vh;", style)
    assert re.search(r"td\.method:first-child, th:first-child \{ position: sticky; left: 0;", style)
    assert re.search(r"td\.method:first-child \{[^}]*max-width: min\(22rem, 45vw\)", style)
    assert re.search(r"thead th \{ position: sticky; top: 0;", style)

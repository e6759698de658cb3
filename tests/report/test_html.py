"""The page is escaped and shows the numbers of ``results.json``; tests/promises has that it stands alone."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from regft_core.report import formatting


def test_links_lead_to_places_of_the_page_and_text_from_files_is_escaped(built: Any) -> None:
    source = built.report.html
    ids = re.findall(r'\bid="([^"]+)"', source)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', source)) <= set(ids)
    for hostile in ("<script>alert", "<b>fine</b>", "<keeps>"):
        assert hostile not in source
        assert html.escape(hostile) in source


def test_leaderboard_shows_the_numbers_of_the_metrics_file(built: Any) -> None:
    metrics = json.loads((built.root / "reports" / "results.json").read_text())
    assert metrics.pop("shown_times") == {"accuracy": 100, "f1": 100, "pearson": 100, "mse": 1}
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

"""Figures of analyses: lines with intervals and paired differences, few names among many arms, sizes, searches."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.evaluate.findings import Plot
from regft_core.report.evaluations import ShownTable
from regft_core.report.figures.analyses import plotted
from regft_core.report.figures.panels import Panel, Point, lines
from regft_core.report.page.formatting import quantity, signed_quantity
from regft_core.statistics.bootstrap import seed_interval

PLOT = {"x": "rate", "y": "accuracy", "diagonal": False, "panels": "sets", "group": "noise", "paired": True}


def curve(seed: int, shift: float) -> dict[str, Any]:
    rows = [
        [noise, rate, 0.9 - rate * (1 + shift) + 0.01 * seed**2] for noise in ("mask", "sampled") for rate in (0.0, 0.5)
    ]
    return {
        "columns": ["noise", "rate", "accuracy"], "rows": rows, "keys": 2, "weight": None, "plot": PLOT, "listed": True,
    }  # fmt: skip


def write(root: Path, method: str, size: int | str, seeds: Any, shift: float, **changes: Any) -> None:
    """What an evaluation found about an arm at one size."""
    runs = [
        {
            "seed": seed, "key": "0", "status": "ok", "error": None, "environment": None, "remarks": [],
            "scalars": {"dev": {"spread": 1e-6 * (1 + shift + seed)}},
            "tables": {"dev": {"curve": curve(seed, shift)}},
            "ranges": {"spread": [0.0, None]}, "over_sizes": ["spread"],
        } | changes
        for seed in seeds
    ]  # fmt: skip
    content = {"evaluation": "toy", "description": "a toy", "options": {}, "machine_dependent": False, "runs": runs}
    content |= {"cell": {"method": method, "task": "sst2", "size": size}}
    path = root / "work" / "evaluate" / method / "sst2" / str(size) / "evaluations" / "toy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def sizes(make: Any, synthetic: Any) -> Any:
    arms = {"vanilla": synthetic.Arm(0.7), "tdt": synthetic.Arm(0.9), "off": synthetic.Arm(0.75, control_for="tdt")}
    built = make(arms, {"sst2": synthetic.Task(n=60)}, range(3), (100, 300, "full"))
    for i, method in enumerate(arms):
        for size in (100, 300, "full"):
            write(built.root, method, size, range(3), 0.2 * i)
    return built, built.again()


def figure(html: str, label: str) -> str:
    """The figure that is read aloud as ``label``."""
    (found,) = [svg for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL) if f'aria-label="{label}"' in svg]
    return found


def test_lines_have_intervals_over_seeds_and_differences_are_paired(sizes: Any) -> None:
    _, report = sizes
    found = next(entry for entry in report.evaluations[0].found if entry.block == "sst2-300")
    vanilla, tdt, _ = found.tables["dev", "curve"]
    assert vanilla.rows[1][:2] == ("mask", 0.5)
    assert vanilla.bands[1] == pytest.approx(seed_interval([0.4, 0.41, 0.44]))
    apart, other = found.tables["dev", "curve, minus vanilla"]
    assert (apart.method, other.method) == ("tdt", "off")
    assert apart.columns == ("noise", "rate", "difference", "low", "high")
    # Seeds move both arms alike, so their difference is the same for every seed: no spread.
    assert apart.rows[1] == ("mask", 0.5, *(pytest.approx(-0.1),) * 3)
    assert apart.of == "paired over 3 seeds"
    assert tdt.plot == Plot("rate", "accuracy", panels="sets", group="noise", paired=True)
    numbers = dict(found.rows)
    assert numbers["vanilla"][0].versus is None
    assert numbers["tdt"][0].versus[0] == pytest.approx(2e-7)
    shown = report.results["sst2-300"]["tdt"]["evaluations"]["toy"]["dev"]["spread"]["minus_reference"]
    assert shown["mean"] == pytest.approx(2e-7)
    assert "minus vanilla: +2.00e−07" in report.html


def test_figures_name_their_arms_and_differ_by_more_than_colour(sizes: Any) -> None:
    _, report = sizes
    svg = figure(report.html, "toy: curve on sst2 at 300 rows")
    for word in ("vanilla", "tdt", "off", "dev, mask", "dev, sampled", "rate", "accuracy"):
        assert f">{word}<" in svg
    assert "not drawn" not in svg
    assert "stroke-dasharray" in svg
    apart = figure(report.html, "toy: curve, minus vanilla on sst2 at 300 rows")
    assert ">difference<" in apart
    assert ">vanilla<" not in apart
    identifiers = re.findall(r'\bid="([^"]+)"', report.html)
    assert len(identifiers) == len(set(identifiers))
    assert not [one for one in identifiers if " " in one or "," in one]


def test_scores_and_numbers_over_the_training_sizes(sizes: Any) -> None:
    built, report = sizes
    assert '<section id="sizes">' in report.html
    svg = figure(report.html, "accuracy of sst2 over the training rows")
    assert all(f">{word}<" in svg for word in ("100", "300", "5000", "dev", "contrast", "training rows", "tdt"))
    spread = figure(report.html, "spread of toy on sst2 over the training rows")
    assert ">sst2, dev<" in spread
    one = built.again(cells=[cell for cell in built.cells if str(cell.size) == "300"])
    assert 'id="sizes"' not in one.html
    assert "over the training rows" not in one.html


def test_of_many_arms_the_reference_and_the_best_are_lines(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.6, curves=False)}
    arms |= {f"m{i}": synthetic.Arm(0.5 + 0.005 * i, curves=False) for i in range(56)}
    arms["best"] = synthetic.Arm(0.97, curves=False)
    arms["off"] = synthetic.Arm(0.7, control_for="best", curves=False)
    built = make(arms, {"sst2": synthetic.Task(n=40)}, [0, 1])
    for i, method in enumerate(arms):
        write(built.root, method, 300, [0, 1], 0.01 * i, remarks=["nothing is known"])
    report = built.again()
    svg = figure(report.html, "toy: curve on sst2 at 300 rows")
    assert all(f">{name}<" in svg for name in ("vanilla", "best"))
    assert ">51 not drawn<" in svg
    assert ">m3<" not in svg
    section = report.html[
        report.html.index('<section id="evaluations">') : report.html.index('<section id="failures">')
    ]
    assert '<details class="figures"><summary>sst2 at 300 rows, 59 methods</summary>' in section
    assert "and 53 more: nothing is known" in section.replace("\n", " ")
    assert len(svg) < 150_000


def test_a_panel_per_arm_has_points_by_group_and_with_many_arms_only_the_picked() -> None:
    plot = Plot("x", "y", points=True, group="view")
    rows = (("original", 0.0, 1.0), ("positive", 1.0, 2.0), ("negative", None, 3.0))
    tables = [ShownTable(f"m{i}", ("view", "x", "y"), rows, "seed 0", plot, {}, False) for i in range(14)]
    svg = plotted("views", "views", {"dev": tables}, ["m3", "m7"])
    assert ">m3<" in svg
    assert ">m4<" not in svg
    assert ">original<" in svg
    assert ">negative<" not in svg  # no point of it is known
    assert plotted("views", "views", {"dev": tables[:2]}, []).count("<svg") == 1


VIEWS = tuple(
    (f"r{i}", view, label, float(i), float(which))
    for which, view in enumerate(("original", "positive", "negative"))
    for i, label in enumerate(("yes", "no", "yes"))
)


def test_a_marker_is_a_view_and_a_colour_a_class() -> None:
    plot = Plot("x", "y", points=True, group="view", colour="label")
    table = ShownTable("tdt", ("idx", "view", "label", "x", "y"), VIEWS, "seed 0", plot, {}, False)
    svg = plotted("views", "views", {"dev": [table]}, ["tdt"])
    for view in ("original", "positive", "negative"):
        for label in ("yes", "no"):
            assert f">{view}, label {label}<" in svg
    # Two classes, two colours, of the page; three views, three markers of each colour.
    assert {"var(--accent)", "var(--down)"} <= set(re.findall(r"fill: (var\([^)]*\))", svg))
    shapes = set(re.findall(r'<use href="#(views-m[0-9a-f]+)"', svg))
    assert len(shapes) >= 6
    alone = replace(plot, colour=None)
    plain = plotted("views", "views", {"dev": [replace(table, plot=alone)]}, ["tdt"])
    assert ">original, label yes<" not in plain


def test_panels_of_arms_share_a_scale_where_they_are_compared() -> None:
    tables = [
        ShownTable(f"m{i}", ("order", "share", "accuracy"), rows, "seed 0", None)
        for i, rows in enumerate(
            (
                (("descending", 0.0, 0.9), ("descending", 0.5, 0.8)),
                (("descending", 0.0, 0.5), ("descending", 0.5, 0.1)),
            )
        )
    ]

    def labels(one_scale: bool) -> list[list[str]]:
        plot = Plot("share", "accuracy", group="order", one_scale=one_scale)
        svg = plotted("d", "d", {"dev": [replace(table, plot=plot) for table in tables]}, ["m0", "m1"])
        return [re.findall(r">([−0-9.]+)<", part) for part in svg.split("matplotlib.axis_")[2::2]]

    own, shared = labels(False), labels(True)
    assert own[0] != own[1]
    assert shared[0] == shared[1] != own[0]


def test_copies_are_violins_side_by_side() -> None:
    plot = Plot("rate", "accuracy", panels="sets", group="noise", violins=True)
    tables = [
        ShownTable(
            arm, ("noise", "rate", "copy", "accuracy"),
            tuple(("mixed", rate, copy, level - rate + spread * copy) for rate in (0.1, 0.3) for copy in range(10)),
            "seed 0", plot, {}, False,
        )
        for arm, level, spread in (("vanilla", 0.7, 0.01), ("tdt", 0.8, 0.0), ("other", 0.5, 0.01))
    ]  # fmt: skip
    svg = plotted("copies", "copies", {"dev": tables}, ["vanilla", "tdt"])
    assert svg == plotted("copies", "copies", {"dev": tables}, ["vanilla", "tdt"])
    for word in ("vanilla", "tdt", "dev, mixed", "rate", "accuracy", "0.1", "0.3"):
        assert f">{word}<" in svg
    assert ">other<" not in svg
    assert len(re.findall(r'id="copies-(?:Fill|Poly)[^"]*"', svg)) == 4  # two arms at two rates
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", svg)
    assert plotted("copies", "copies", {"dev": tables}, []) == ""


def test_a_baseline_is_dotted_once_and_zero_is_marked() -> None:
    panel = Panel("dev", {"a": [Point(0, 1), Point(1, 2)]}, [Point(0, 1), Point(1, 1)])
    svg = lines("base", "base", [panel, Panel("empty", {"a": []})], ["a"], x="layer", y="score", baseline="pretrained")
    assert ">pretrained<" in svg
    assert ">empty<" not in svg
    assert lines("none", "none", [Panel("dev", {"a": []})], ["a"], x="x", y="y") == ""


def test_losses_of_a_search_are_drawn_with_the_outer_one(make: Any, synthetic: Any) -> None:
    arms = {"vanilla": synthetic.Arm(0.7), "weight_mixup": synthetic.Arm(0.8, search=True)}
    built = make(arms, {"sst2": synthetic.Task(n=40)}, [0, 1])
    folder = built.root / "work" / "search" / "weight_mixup" / "sst2" / "300"
    columns = ("seed", "phase", "step", "epoch", "loss", "learning_rate", "gradient_norm")
    _csv(folder / "curves.csv", columns, [(s, "search", i, 0, 1 / i, 1e-4, 1) for s in (0, 1) for i in range(1, 30)])
    outer = [(s, "search", i, "weight_mixup.validation_loss", 2 / (i + 1)) for s in (0, 1) for i in (0, 10, 20)]
    _csv(folder / "method_metrics.csv", ("seed", "phase", "step", "name", "value"), outer)
    svg = figure(built.again().html, "Loss of the phases before fine-tuning on sst2 at 300 rows")
    assert all(f">{word}<" in svg for word in ("weight_mixup, search", "inner", "outer"))


def _csv(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])


def test_small_numbers_keep_their_digits() -> None:
    assert quantity(1.234e-6) == "1.23e−06"
    assert quantity(-1e-4) == "−1.00e−04"
    assert signed_quantity(0.5) == "+0.500"
    assert signed_quantity(-0.5) == "−0.500"
    assert signed_quantity(0.0) == "0"
    assert signed_quantity(None) == "n/a"

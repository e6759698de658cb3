"""Runs of one comparison share a machine and an encoder, or the report refuses or says so."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from regft_core.errors import ConfigError
from regft_core.report import summary_table, write_report
from regft_core.report.environments import UNKNOWN, described
from regft_core.schema.report import ReportConfig
from tests.errors import raises_code

CPU = {"device": "cpu", "name": "Two cores", "threads": 1}
GPU = {"device": "cuda", "name": "Large card", "threads": 4}


def report(synthetic: Any, root: Path, arms: Any, mixed: str = "refuse", tasks: Any = None, seeds: Any = (0, 1)) -> Any:
    tasks = tasks or {"sst2": synthetic.Task(n=40)}
    cells = synthetic.build(root, arms, tasks, (300,), seeds)
    config = ReportConfig(bootstrap_samples=100, mixed_environments=mixed)
    return write_report(root, cells, seeds, config, synthetic.methods_of(arms), training=synthetic.TRAINING)


def test_one_environment_is_fine_and_not_mentioned(synthetic: Any, tmp_path: Path) -> None:
    found = report(synthetic, tmp_path, {n: synthetic.Arm(environment=CPU) for n in ("vanilla", "a")})
    assert found.blocks[0].mixed_environments == ()
    assert "mixed environments" not in found.html.split("</style>")[1]


def test_records_that_say_nothing_are_one_environment(synthetic: Any, tmp_path: Path) -> None:
    assert report(synthetic, tmp_path, {n: synthetic.Arm() for n in ("vanilla", "a")}).blocks[0].rows


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (GPU, "cuda Large card, threads 4: a\n"),
        (CPU | {"threads": 2}, "cpu Two cores, threads 2: a\n"),
        (CPU | {"blas": "other"}, "cpu Two cores, blas other, threads 1: a\n"),
        (None, f"{UNKNOWN}: a\n"),
    ],
)
def test_arms_from_two_places_are_refused(synthetic: Any, tmp_path: Path, other: Any, shown: str) -> None:
    arms = {"vanilla": synthetic.Arm(environment=CPU), "a": synthetic.Arm(environment=other)}
    with raises_code(ConfigError, "mixed-environments", "sst2-300", "from 2") as caught:
        report(synthetic, tmp_path, arms)
    said = str(caught.value)
    assert "report.mixed_environments" in said
    assert "cpu Two cores, threads 1: vanilla\n" in said
    assert shown in said
    assert "train all of them on one machine" in said
    assert "mixed_environments: mark" in said
    assert not (tmp_path / "reports").exists()


def test_seeds_from_two_places_are_named(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(environment=CPU), "a": synthetic.Arm(environment=CPU, elsewhere={1: GPU})}
    with pytest.raises(ConfigError) as caught:
        report(synthetic, tmp_path, arms)
    assert "threads 1: vanilla and a (seed 0)" in str(caught.value)
    assert "threads 4: a (seed 1)" in str(caught.value)


def test_a_search_elsewhere_counts(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(environment=CPU), "a": synthetic.Arm(environment=CPU, search=True)}
    report(synthetic, tmp_path, arms)
    path = tmp_path / "work/search/a/sst2/300/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["runs"][0]["environment"] = GPU
    path.write_text(json.dumps(manifest))
    cells = synthetic.build(tmp_path / "again", arms, {"sst2": synthetic.Task(n=40)}, (300,), (0, 1))
    with raises_code(ConfigError, "mixed-environments", "Large card, threads 4: a (seed 0)"):
        write_report(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), synthetic.methods_of(arms))


def test_blocks_may_differ_from_each_other(synthetic: Any, tmp_path: Path) -> None:
    """A comparison is one task at one size; another task may have run elsewhere."""
    arms = {n: synthetic.Arm(environment=CPU) for n in ("vanilla", "a")}
    cells = synthetic.build(tmp_path, arms, {"sst2": synthetic.Task(n=40)}, (300,), (0, 1))
    moved = {n: synthetic.Arm(environment=GPU) for n in arms}
    cells += synthetic.build(tmp_path, moved, {"cola": synthetic.Task(n=40)}, (300,), (0, 1))
    write_report(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), synthetic.methods_of(arms))


def test_marking_is_visible_everywhere(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(environment=CPU), "a": synthetic.Arm(environment=GPU | {"name": "<b>card"})}
    found = report(synthetic, tmp_path, arms, "mark")
    assert "cuda &lt;b&gt;card, threads 4: a" in found.html
    assert '<span class="mark bad">mixed environments</span>' in found.html
    assert any("runs come from 2 environments" in text for text in found.warnings)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(summary_table(found))
    assert "MIXED ENVIRONMENTS" in console.export_text()
    assert json.loads((tmp_path / "reports/metrics/sst2-300.json").read_text())["mixed_environments"] is True
    results = json.loads((tmp_path / "reports/results.json").read_text())
    assert "cpu Two cores, threads 1: vanilla" in results["sst2-300"]["a"]["mixed_environments"]


@pytest.mark.parametrize("mixed", ["refuse", "mark"])
def test_different_encoders_are_always_refused(synthetic: Any, tmp_path: Path, mixed: str) -> None:
    arms = {"vanilla": synthetic.Arm(), "a": synthetic.Arm(encoder="b" * 64), "c": synthetic.Arm()}
    with raises_code(ConfigError, "mixed-encoders", "2 different encoders") as caught:
        report(synthetic, tmp_path, arms, mixed)
    assert f"{'a' * 12}: vanilla and c" in str(caught.value)
    assert f"{'b' * 12}: a" in str(caught.value)
    assert "trains the outdated ones again" in str(caught.value)


def test_arms_without_an_encoder_have_none_to_differ_in(synthetic: Any, tmp_path: Path) -> None:
    arms = {"vanilla": synthetic.Arm(), "words": synthetic.Arm(trains_encoder=False)}
    report(synthetic, tmp_path, arms)
    path = tmp_path / "work/finetune/words/sst2/300/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["model"] = None
    path.write_text(json.dumps(manifest))
    shutil.rmtree(tmp_path / "reports")
    cells = synthetic.build(tmp_path / "again", arms, {"sst2": synthetic.Task(n=40)}, (300,), (0, 1))
    found = write_report(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), synthetic.methods_of(arms))
    assert "content_sha256" in found.html


def test_an_environment_in_words() -> None:
    assert described({}) == described(None) == UNKNOWN
    assert described({"threads": 2}) == "threads 2"
    assert described(GPU | {"driver": {"b": 1, "a": 2}}) == 'cuda Large card, driver {"a":2,"b":1}, threads 4'

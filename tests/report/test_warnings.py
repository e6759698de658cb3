"""Warnings name what weakens a conclusion; runs of one comparison share a machine and an encoder."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from regft_core.errors import ConfigError, DataError
from regft_core.report import Inputs, summary_table, write_report
from regft_core.report.warnings import UNKNOWN, described
from regft_core.schema.report import ReportConfig
from tests.errors import raises_code

CPU = {"device": "cpu", "name": "Two cores", "threads": 1}
GPU = {"device": "cuda", "name": "Large card", "threads": 4}


def shown(report: Any) -> str:
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(summary_table(report))
    return console.export_text()


@pytest.fixture
def changed(built: Any, tmp_path: Path) -> Any:
    """Change a JSON file of a copy and return the new report's warnings."""
    shutil.copytree(built.root / "work", tmp_path / "work")
    cells = [cell for cell in built.cells if cell.method in ("vanilla", "r_drop") and cell.task == "sst2"]

    def change(path: str, edit: Any) -> str:
        file = tmp_path / "work" / path
        value = json.loads(file.read_text())
        edit(value)
        file.write_text(json.dumps(value))
        return "\n".join(write_report(Inputs(tmp_path, cells, built.seeds, built.config, built.methods)).warnings)

    return change


def warn(value: Any, texts: list[str]) -> None:
    for run, text in zip(value["runs"], texts):
        run["sets"]["dev"]["warning"] = text


@pytest.mark.parametrize(
    ("path", "edit", "warning"),
    [
        (
            "datasets/sst2/task.json",
            lambda v: v["duplicates"].update(dev=7),
            "7 rows of dev have the text of a",
        ),
        (
            "datasets/sst2/task.json",
            lambda v: v["duplicates"].update(train_within=2),
            "2 rows of the training split",
        ),
        (
            "datasets/sst2/task.json",
            lambda v: v["duplicates"].update(train_within=1),
            "1 row of the training split",
        ),
        (
            "subsamples/sst2/300/manifest.json",
            lambda v: v["seeds"]["4"].update(label_counts={"negative": 300, "positive": 0}),
            "sst2-300, seed 4: the training rows have no example of positive",
        ),
        (
            "finetune/r_drop/sst2/300/manifest.json",
            lambda v: v["versions"].update(torch="2.12.0"),
            "different versions of torch: 2.12.0 and 2.13.0",
        ),
        (
            "evaluate/r_drop/sst2/300/result.json",
            lambda v: warn(v, ["labels look swapped"] * 2),
            "r_drop on sst2-300, set dev, seeds 0, 1: labels look swapped",
        ),
        (  # Seeds with the same warning but for its numbers give one.
            "evaluate/r_drop/sst2/300/result.json",
            lambda v: warn(v, [f"Pearson -0.{i}1 is negative" for i in range(3)]),
            "r_drop on sst2-300, set dev, seeds 0, 1, 2; seed 0: Pearson -0.01 is negative",
        ),
    ],
)
def test_what_is_warned_of(changed: Any, path: str, edit: Any, warning: str) -> None:
    assert changed(path, edit).count(warning) == 1


def test_ordinary_grid_warns_of_degraded_runs_only(built: Any) -> None:
    assert list(built.report.warnings) == [
        "r_drop on sst2-300 ran degraded: bf16 <keeps> nothing",
        "r_drop on sick-300 ran degraded: bf16 <keeps> nothing",
    ]


def test_dropped_rows_are_on_the_page(changed: Any, tmp_path: Path) -> None:
    changed("datasets/sst2/task.json", lambda v: v.update(dropped={"train": {"label -1": 3, "without text": 2}}))
    page = (tmp_path / "reports" / "report.html").read_text(encoding="utf-8")
    assert "<dt>Dropped</dt><dd>train label -1: 3, without text: 2</dd>" in page


TABLE = """\
trained_on:
  ours:
    encoders: [MODEL]
    source: its card
    tasks: {sst2: Sentiment 2, imdb_cad: Films}
"""


def test_what_the_encoder_was_trained_on(changed: Any, built: Any, tmp_path: Path) -> None:
    manifest = json.loads((built.root / "work/finetune/vanilla/sst2/300/manifest.json").read_text())
    described = json.loads((built.root / "work/datasets/sst2/task.json").read_text())
    ood = next(name for name in described["sets"] if name != "dev")
    table = tmp_path / "pipelines" / "contamination.yaml"
    table.parent.mkdir()
    table.write_text(TABLE.replace("MODEL", manifest["model"]["name"]).replace("imdb_cad", ood))
    path = "finetune/r_drop/sst2/300/manifest.json"
    said = changed(path, lambda v: v)
    name = manifest["model"]["name"]
    assert f"{name} was trained on Sentiment 2 (its card): scores on sst2 are not those of few labels alone." in said
    assert f"for it the set {ood}, which judges sst2, is not out of distribution." in said
    # Arms that read no encoder are not concerned.
    changed("finetune/vanilla/sst2/300/manifest.json", lambda v: v.update(reads_encoder=False))
    assert "was trained on" not in changed(path, lambda v: v.update(reads_encoder=False))


# ----------------------------------------------------------------------------- truncation

WARNING = "sst2: max_length 128 cuts 40.0% of dev; 95 of 100 rows have at most 60 tokens"


@pytest.fixture(scope="module")
def cut(make: Any, synthetic: Any) -> Any:
    arms = {"vanilla": synthetic.Arm(0.7)}
    tasks = {"sst2": synthetic.Task(n=60, cuts={"dev": 0.4}), "cola": synthetic.Task(n=60)}
    return make(arms, tasks, seeds=range(2))


def test_what_was_cut_is_the_first_warning(cut: Any) -> None:
    assert cut.report.warnings[0].startswith(WARNING)
    assert WARNING in shown(cut.report)
    assert WARNING in cut.report.html
    assert "Cut at 128" in cut.report.html


def test_the_terminal_says_it_of_every_task_once(cut: Any) -> None:
    text = shown(cut.report)
    assert "cola: max_length 128 cuts 1.0% of the training rows (median 20 tokens, 95% have at most 60" in text
    assert text.count("sst2: max_length") == 1


def test_a_missing_file_names_its_stage(cut: Any) -> None:
    path = cut.root / "work" / "lengths" / "cola.json"
    content = path.read_text()
    path.unlink()
    with raises_code(DataError, "file-missing", "(stage subsample)"):
        cut.again()
    path.write_text(content)


# ----------------------------------------------------------------------------- environments


def report(synthetic: Any, root: Path, arms: Any, mixed: str = "refuse", tasks: Any = None, seeds: Any = (0, 1)) -> Any:
    tasks = tasks or {"sst2": synthetic.Task(n=40)}
    cells = synthetic.build(root, arms, tasks, (300,), seeds)
    config = ReportConfig(bootstrap_samples=100, mixed_environments=mixed)
    return write_report(Inputs(root, cells, seeds, config, synthetic.methods_of(arms), training=synthetic.TRAINING))


def test_one_environment_is_fine_and_not_mentioned(synthetic: Any, tmp_path: Path) -> None:
    found = report(synthetic, tmp_path, {n: synthetic.Arm(environment=CPU) for n in ("vanilla", "a")})
    assert found.blocks[0].mixed_environments == ()
    assert "mixed environments" not in found.html.split("</style>")[1]


def test_records_that_say_nothing_are_one_environment(synthetic: Any, tmp_path: Path) -> None:
    assert report(synthetic, tmp_path, {n: synthetic.Arm() for n in ("vanilla", "a")}).blocks[0].rows


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (GPU, "cuda Large card, threads 4: a\n"),
        (CPU | {"threads": 2}, "cpu Two cores, threads 2: a\n"),
        (CPU | {"blas": "other"}, "cpu Two cores, blas other, threads 1: a\n"),
        (None, f"{UNKNOWN}: a\n"),
    ],
)
def test_arms_from_two_places_are_refused(synthetic: Any, tmp_path: Path, other: Any, place: str) -> None:
    arms = {"vanilla": synthetic.Arm(environment=CPU), "a": synthetic.Arm(environment=other)}
    with raises_code(ConfigError, "mixed-environments", "sst2-300", "from 2") as caught:
        report(synthetic, tmp_path, arms)
    said = str(caught.value)
    assert "report.mixed_environments" in said
    assert "cpu Two cores, threads 1: vanilla\n" in said
    assert place in said
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
        write_report(Inputs(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), synthetic.methods_of(arms)))


def test_blocks_may_differ_from_each_other(synthetic: Any, tmp_path: Path) -> None:
    """A comparison is one task at one size; another task may have run elsewhere."""
    arms = {n: synthetic.Arm(environment=CPU) for n in ("vanilla", "a")}
    cells = synthetic.build(tmp_path, arms, {"sst2": synthetic.Task(n=40)}, (300,), (0, 1))
    moved = {n: synthetic.Arm(environment=GPU) for n in arms}
    cells += synthetic.build(tmp_path, moved, {"cola": synthetic.Task(n=40)}, (300,), (0, 1))
    write_report(Inputs(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), synthetic.methods_of(arms)))


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
    found = write_report(
        Inputs(tmp_path, cells, (0, 1), ReportConfig(bootstrap_samples=100), synthetic.methods_of(arms))
    )
    assert "content_sha256" in found.html


def test_an_environment_in_words() -> None:
    assert described({}) == described(None) == UNKNOWN
    assert described({"threads": 2}) == "threads 2"
    assert described(GPU | {"driver": {"b": 1, "a": 2}}) == 'cuda Large card, driver {"a":2,"b":1}, threads 4'

"""What is missing or contradictory names the stage to run; what weakens a conclusion is warned of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.errors import ConfigError, DataError
from regft_core.evaluate.evaluated import positive_of
from regft_core.report import write_report
from regft_core.report.read_grid import Inputs, read_grid
from regft_core.schema.params import ReportConfig
from regft_core.settings.project import Cell
from tests.errors import raises_code
from tests.report.grids import terminal
from tests.report.synthetic import Arm, Task, edited, inputs_of

CELLS = [Cell("vanilla", "sst2", 300), Cell("weight_mixup", "sst2", 300)]
PLACE = "work/evaluate/vanilla/sst2/300"


def read(root: Path, seeds: Any = range(6)) -> Any:
    methods: Any = {"vanilla": SimpleNamespace(earlier=()), "weight_mixup": SimpleNamespace(earlier=("search",))}
    return read_grid(Inputs(root, CELLS, list(seeds), ReportConfig(), methods))


@pytest.fixture
def copy(built: Any, tmp_path: Path) -> Path:
    shutil.copytree(built.root / "work", tmp_path / "work")
    return tmp_path


def test_stale_files_are_never_opened(copy: Path) -> None:
    for folder in ("evaluate/old/sst2/300", "evaluate/vanilla/sst2/100", "finetune/old/sst2/300", "datasets/old"):
        (copy / "work" / folder).mkdir(parents=True)
        (copy / "work" / folder / "result.json").write_text("{broken")
    (copy / PLACE / "predictions" / "seed-4" / "dev.jsonl").write_text("broken")
    shutil.rmtree(copy / "work" / "evaluate" / "r_drop")
    (block,) = read(copy, [0, 1])
    assert set(block.cells) == {"vanilla", "weight_mixup"}


@pytest.mark.parametrize(
    ("path", "edit", "code", "stage"),
    [
        ("work/datasets/sst2/task.json", None, "damaged-json", "subsample"),
        ("work/finetune/vanilla/sst2/300/manifest.json", None, "damaged-json", "finetune"),
        ("work/search/weight_mixup/sst2/300/manifest.json", None, "damaged-json", "search"),
        (f"{PLACE}/predictions/seed-2/contrast.jsonl", None, "damaged-output", "evaluate"),
        (f"{PLACE}/result.json", lambda v: v["runs"].pop(4), "outdated-evaluation", "evaluate"),
        ("work/subsamples/sst2/300/manifest.json", lambda v: v["seeds"].pop("5"), "rows-missing", "subsample"),
        (f"{PLACE}/result.json", lambda v: v["runs"][2].update(key="f" * 64), "outdated-evaluation", "evaluate"),
    ],
)
def test_what_contradicts_names_the_stage(copy: Path, path: str, edit: Any, code: str, stage: str) -> None:
    file = copy / path
    if edit is None:
        file.write_text("{not json\n")
    else:
        with edited(file) as value:
            edit(value)
    with raises_code(DataError, code, f"(stage {stage})", file.name):
        read(copy)


def test_runs_judged_on_other_examples_are_refused(copy: Path) -> None:
    with edited(copy / PLACE / "predictions" / "seed-3" / "dev.jsonl") as rows:
        rows[0]["label"] = 1 - rows[0]["label"]
    with raises_code(DataError, "rows-differ"):
        read(copy)


def test_positive_label_goes_through_the_label_map(copy: Path) -> None:
    renamed = {"labels": ["good", "bad"], "label_map": {"positive": "good", "negative": "bad"}}
    with edited(copy / "work" / "datasets" / "sst2" / "task.json") as described:
        described["sets"]["contrast"] |= renamed
    (block,) = read(copy)
    assert [positive_of(block.described, name) for name in ("dev", "contrast")] == [1, 0]


# ----------------------------------------------------------------------------------------------------------- warnings


CPU = {"device": "cpu", "name": "Two cores", "threads": 1}
GPU = {"device": "cuda", "name": "Large card", "threads": 4}


@pytest.fixture
def changed(built: Any, tmp_path: Path) -> Any:
    """Change a JSON file of a copy and return the new report's warnings."""
    shutil.copytree(built.root / "work", tmp_path / "work")
    cells = [cell for cell in built.inputs.cells if cell.method in ("vanilla", "r_drop") and cell.task == "sst2"]

    def change(path: str, edit: Any) -> str:
        with edited(tmp_path / "work" / path) as value:
            edit(value)
        return "\n".join(built.again(None, root=tmp_path, cells=cells).warnings)

    return change


@pytest.mark.parametrize(
    ("path", "edit", "warning"),
    [
        ("datasets/sst2/task.json", lambda v: v["duplicates"].update(dev=7), "7 rows of dev have the text of a"),
        (
            "lengths/sst2.json",
            lambda v: v["sets"]["dev"].update(cut=0.4),
            "sst2: max_length 128 cuts 40.0% of dev; 95 of 100 rows have at most 60 tokens",
        ),
        ("datasets/sst2/task.json", lambda v: v["duplicates"].update(train_within=1), "1 row of the training split"),
        (
            "subsamples/sst2/300/manifest.json",
            lambda v: v["seeds"]["4"].update(label_counts={"negative": 300, "positive": 0}),
            "sst2-300: training rows of some seeds have no example of positive (1 seed)",
        ),
        (
            "evaluate/r_drop/sst2/300/result.json",
            lambda v: [v["runs"][i].update(degraded=[f"head: {i} of 9 classes have a single row"]) for i in range(3)],
            "r_drop on sst2-300 ran degraded: head: 0 of 9 classes",
        ),
        (
            "finetune/r_drop/sst2/300/manifest.json",
            lambda v: (v["versions"].update(torch="2.12.0"), v["runs"][0].update(precision="bf16")),
            "trained with different versions of torch (2.12.0 and 2.13.0) and precisions (bf16 and fp32).",
        ),
        (
            # Seeds with the same warning but for its numbers give one.
            "evaluate/r_drop/sst2/300/result.json",
            lambda v: [v["runs"][i]["sets"]["dev"].update(warning=f"Pearson -0.{i}1 is negative") for i in range(3)],
            "r_drop on sst2-300, set dev, seeds 0, 1 and 2: Pearson -0.01 is negative",
        ),
    ],
)
def test_what_is_warned_of(changed: Any, path: str, edit: Any, warning: str) -> None:
    text = changed(path, edit)
    assert text.count(warning) == 1
    assert text.count("classes have a single row") <= 1


TABLE = """\
trained_on:
  ours:
    encoders: [MODEL]
    source: its card
    tasks: {sst2: Sentiment 2, imdb_cad: Films}
"""


def test_what_the_encoder_was_trained_on(changed: Any, built: Any, tmp_path: Path) -> None:
    path = built.root / "work/finetune/vanilla/sst2/300/manifest.json"
    name = json.loads(path.read_text())["settings"]["model"]["name"]
    described = json.loads((built.root / "work/datasets/sst2/task.json").read_text())
    ood = next(name for name in described["sets"] if name != "dev")
    table = tmp_path / "pipelines" / "contamination.yaml"
    table.parent.mkdir()
    table.write_text(TABLE.replace("MODEL", name).replace("imdb_cad", ood))
    place = "finetune/r_drop/sst2/300/manifest.json"
    said = changed(place, lambda v: v)
    assert f"{name} was trained on Sentiment 2 (its card): scores on sst2 are not those of few labels alone." in said
    assert f"for it the set {ood}, which judges sst2, is not out of distribution." in said
    # Arms that read no encoder are not concerned.
    changed("finetune/vanilla/sst2/300/manifest.json", lambda v: v.update(reads_encoder=False))
    assert "was trained on" not in changed(place, lambda v: v.update(reads_encoder=False))


# ----------------------------------------------------------------------------- environments


def report(root: Path, arms: Any, mixed: str = "refuse") -> Any:
    config = {"bootstrap_samples": 100, "mixed_environments": mixed}
    return write_report(inputs_of(root, arms, {"sst2": Task(n=40)}, (0, 1), **config))


@pytest.mark.parametrize(
    ("other", "places"),
    [
        ({"environment": GPU}, ("cuda Large card, threads 4: a", "threads 1: vanilla")),
        ({"environment": CPU | {"threads": 2}}, ("cpu Two cores, threads 2: a",)),
        ({"environment": None}, ("unknown (the records do not say): a",)),
        ({"environment": CPU, "elsewhere": {1: GPU}}, ("threads 1: vanilla and a", "threads 4: a")),
    ],
)
def test_runs_of_one_block_from_two_places_are_refused(tmp_path: Path, other: Any, places: tuple[str, ...]) -> None:
    arms = {"vanilla": Arm(environment=CPU), "a": Arm(**other)}
    with raises_code(ConfigError, "mixed-environments", "sst2-300", "mixed_environments: mark", *places):
        report(tmp_path, arms)
    assert not (tmp_path / "reports").exists()


def test_marking_is_visible_everywhere(tmp_path: Path) -> None:
    arms = {"vanilla": Arm(environment=CPU), "a": Arm(environment=GPU | {"name": "<b>card"})}
    found = report(tmp_path, arms, "mark")
    assert "cuda &lt;b&gt;card, threads 4: a" in found.html
    assert any("runs come from 2 environments" in text for text in found.warnings)
    assert "MIXED ENVIRONMENTS" in terminal(found, 150)
    assert json.loads((tmp_path / "reports/metrics/sst2-300.json").read_text())["mixed_environments"] is True
    results = json.loads((tmp_path / "reports/results.json").read_text())
    assert "cpu Two cores, threads 1: vanilla" in results["sst2-300"]["a"]["mixed_environments"]


def test_different_encoders_are_always_refused_and_no_encoder_is_none(tmp_path: Path, make: Any) -> None:
    arms = {"vanilla": Arm(), "a": Arm(encoder="b" * 64), "c": Arm()}
    groups = (f"{'a' * 12}: vanilla and c", f"{'b' * 12}: a")
    with raises_code(ConfigError, "mixed-encoders", "2 different encoders", *groups):
        report(tmp_path, arms, "mark")
    built = make({"vanilla": Arm(), "words": Arm(trains_encoder=False)}, {"sst2": Task(n=40)}, (0, 1))
    with edited(built.root / "work/finetune/words/sst2/300/manifest.json") as manifest:
        manifest["model"] = None
    assert built.again().html

"""What no import names but a folder holds belongs to the code of those who use it."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import yaml

from regft_core.io import read_json
from regft_core.runs.fingerprint import ENTRIES, METHOD_ENTRIES, CodeGraph, package_root
from stages import code


def test_every_metric_counts_for_evaluation_and_none_for_training() -> None:
    graph = CodeGraph(package_root())
    files = {f"regft_core.metrics.{path.stem}" for path in (package_root() / "regft_core/metrics").glob("[!_]*.py")}
    assert "regft_core.metrics.f1_macro" in files
    assert files <= set(graph.reach(ENTRIES["evaluate"]))
    assert files <= set(graph.reach(ENTRIES["report"], ()))
    assert not files & set(graph.reach(METHOD_ENTRIES))


def test_an_edited_metric_is_noticed(tmp_path: Path) -> None:
    package = tmp_path / "regft_core" / "metrics"
    package.mkdir(parents=True)
    (tmp_path / "regft_core" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("X = 1\n")
    before = CodeGraph(tmp_path).reach(["regft_core.metrics"])
    (package / "one.py").write_text("X = 2\n")
    assert CodeGraph(tmp_path).reach(["regft_core.metrics"]) != before


def test_a_method_depends_on_its_own_optimiser_only(tmp_path: Path) -> None:
    for name in ("pipelines", "data"):
        shutil.copytree(package_root() / name, tmp_path / name)
    shutil.copy(package_root() / "dvc.yaml", tmp_path)
    params = yaml.safe_load((package_root() / "params.yaml").read_text())
    params["protocols"] = {"finetune": ["vanilla", "adamax", "pats"], "search_finetune": []}
    (tmp_path / "params.yaml").write_text(yaml.dump(params))
    code.main(tmp_path, argparse.Namespace())
    found = {
        name: {m for m in read_json(tmp_path / "work/code" / f"method-{name}.json")["modules"] if "optimisers." in m}
        for name in ("vanilla", "adamax", "pats")
    }
    own = "regft_core.training.optimisers."
    assert found == {"vanilla": {own + "adamw"}, "adamax": {own + "adamax"}, "pats": {own + "adamax"}}

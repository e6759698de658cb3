"""Point shipped tasks at local copies of public data, in a working directory of its own.

    python benchmarks/real_tasks.py --data DIR --out PROJECT_DIR --tasks sst2 mrpc

Writes ``PROJECT_DIR/data/<set>/*`` and ``PROJECT_DIR/pipelines/tasks/<task>.yaml`` for the tasks
and for those of their out-of-distribution sets that DIR holds. DIR has one folder per set with
``train.jsonl.gz``, ``dev.jsonl.gz`` ...: rows {"sentence" or "sentence1", "sentence2", "label", "idx"}
with integer labels. The data are third-party: PROJECT_DIR must lie outside this repository.
``--evaluation-rows N`` keeps N rows of every larger evaluation set, drawn with a fixed seed, and
``--ood`` keeps some of the out-of-distribution sets only: for slow machines.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
_NLI = ("entailment", "neutral", "contradiction")
_TNEWS = (
    "story", "culture", "entertainment", "sports", "finance", "house", "car", "education",
    "technology", "military", "travel", "world", "stock", "agriculture", "game",
)  # fmt: skip


@dataclass(frozen=True)
class LocalSet:
    """Files of one set below DIR; ``labels`` names the integers 0, 1 ... (none: regression)."""

    folder: str
    labels: tuple[str, ...] | None
    train: str | None = "train"
    dev: str = "dev"
    pair: bool = True
    #: split name in the shipped YAML -> file
    others: dict[str, str] = field(default_factory=dict)


_TEST = {"test": "test"}
SETS: dict[str, LocalSet] = {
    "cola": LocalSet("cola", ("unacceptable", "acceptable"), pair=False),
    "sst2": LocalSet("sst2", ("negative", "positive"), pair=False),
    "mrpc": LocalSet("mrpc", ("not_equivalent", "equivalent")),
    "stsb": LocalSet("stsb", None),
    "qqp": LocalSet("qqp", ("not_duplicate", "duplicate")),
    "mnli": LocalSet("mnli", _NLI, dev="dev_matched"),
    "mnli_mm": LocalSet("mnli", _NLI, train=None, dev="dev_mismatched"),
    "qnli": LocalSet("qnli", ("entailment", "not_entailment")),
    "rte": LocalSet("rte", ("entailment", "not_entailment")),
    "snli": LocalSet("snli", _NLI),
    "sick": LocalSet("sick", _NLI, others=_TEST),
    "sick_relatedness": LocalSet("sick_relatedness", None, others=_TEST),
    "anli_r1": LocalSet("anli", _NLI, train=None, dev="dev_r1"),
    "anli_r2": LocalSet("anli", _NLI, train=None, dev="dev_r2"),
    "anli_r3": LocalSet("anli", _NLI, train=None, dev="dev_r3"),
    "paws_qqp": LocalSet("paws_qqp", ("not_paraphrase", "paraphrase")),
    "ocnli": LocalSet("ocnli", _NLI),
    "cmnli": LocalSet("cmnli", _NLI),
    "iflytek": LocalSet("iflytek", tuple(str(number) for number in range(119)), pair=False),
    "csl": LocalSet("csl", ("some_false", "all_true")),
    "tnews": LocalSet("tnews", _TNEWS, pair=False),
    "afqmc": LocalSet("afqmc", ("different", "same")),
    "bustm": LocalSet("bustm", ("different", "same")),
}


def materialise(task: str, project: Path, data: Path, *, with_ood: bool = True) -> list[str]:
    """Write ``task`` (and its OOD tasks) for ``project``; returns the OOD sets that DATA lacks.

    Labels keep the names and the order of the shipped YAML; ``label_values`` ties the local
    integers to them. Raises ValueError for a project inside this repository and for a
    task without local files.
    """
    project = project.resolve()
    if project == ROOT or ROOT in project.parents:
        raise ValueError(f"{project} is inside the repository; third-party data does not belong there")
    shipped = yaml.safe_load((ROOT / "pipelines" / "tasks" / f"{task}.yaml").read_text(encoding="utf-8"))
    target = project / "pipelines" / "tasks" / f"{task}.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    if task not in SETS:
        raise ValueError(f"no local copy of '{task}'; there are {', '.join(sorted(SETS))}")
    local = SETS[task]
    shipped["source"] = {"kind": "files"}
    shipped["splits"] = {"dev": _copy(local, local.dev, project, data)}
    if local.train is not None:
        shipped["splits"]["train"] = _copy(local, local.train, project, data)
    pair = {"text": "sentence1", "text_pair": "sentence2"} if local.pair else {"text": "sentence"}
    shipped["columns"] = {**pair, "label": "label"}
    shipped.pop("drop_labels", None)
    if local.labels is not None:
        shipped["label_values"] = {str(number): name for number, name in enumerate(local.labels)}
    missing: list[str] = []
    kept: dict[str, Any] = {}
    relations = shipped.pop("ood", {}) if with_ood else {}
    for name, entry in relations.items():
        if name not in SETS:
            missing.append(name)
            continue
        entry = dict(entry or {})
        if "split" in entry:
            entry["split"] = _copy(SETS[name], SETS[name].others[entry["split"]], project, data)
        kept[name] = entry
        materialise(name, project, data, with_ood=False)
    shipped.pop("ood", None)
    if kept:
        shipped["ood"] = kept
    if with_ood or not _is_local(target):  # a task asked for by name keeps its OOD sets
        target.write_text(yaml.safe_dump(shipped, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return missing


def _is_local(path: Path) -> bool:
    """Whether a task file is there already that reads local files, not the shipped one of a clone."""
    return path.is_file() and yaml.safe_load(path.read_text(encoding="utf-8"))["source"]["kind"] == "files"


def _copy(local: LocalSet, name: str, project: Path, data: Path) -> str:
    relative = f"{local.folder}/{name}.jsonl.gz"
    target = project / "data" / relative
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data / relative, target)
    return relative


def shrink(project: Path, task: str, rows: int, ood: list[str] | None) -> None:
    """Keep ``rows`` rows of the task's evaluation files, and the OOD sets named in ``ood`` (all if None)."""
    folder = project / "pipelines" / "tasks"
    target = folder / f"{task}.yaml"
    declared = yaml.safe_load(target.read_text(encoding="utf-8"))
    if ood is not None:
        declared["ood"] = {name: entry for name, entry in declared.get("ood", {}).items() if name in ood}
        target.write_text(yaml.safe_dump(declared, sort_keys=False, allow_unicode=True), encoding="utf-8")
    files = {declared["splits"]["dev"]}
    for name, entry in declared.get("ood", {}).items():
        own = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        files.add((entry or {}).get("split") or own["splits"]["dev"])
    for file in sorted(files):
        path = project / "data" / file
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")
        if len(lines) > rows:
            kept = sorted(Random(42).sample(range(len(lines)), rows))
            path.write_bytes(gzip.compress("".join(lines[i] + "\n" for i in kept).encode("utf-8"), mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the local sets")
    parser.add_argument("--out", type=Path, required=True, help="project directory to write, outside the repository")
    parser.add_argument("--tasks", nargs="+", required=True, metavar="TASK")
    parser.add_argument("--evaluation-rows", type=int, help="rows to keep of every larger evaluation set")
    parser.add_argument("--ood", nargs="*", metavar="SET", help="out-of-distribution sets to keep; all by default")
    options = parser.parse_args()
    for task in options.tasks:
        missing = materialise(task, options.out, options.data)
        if options.evaluation_rows is not None or options.ood is not None:
            shrink(options.out.resolve(), task, options.evaluation_rows or 10**9, options.ood)
        print(f"{task}: written" + (f"; no local copy of its OOD sets {', '.join(missing)}" if missing else ""))


if __name__ == "__main__":
    main()

"""Give methods the start of ``lp_ft``: the head of a linear probe, a pair's texts each by themselves.

    python benchmarks/from_solved_head.py PROJECT_DIR hype_n vanilla_no_dropout ...

Writes ``PROJECT_DIR/pipelines/methods/<method>_lp.yaml`` for each: the shipped method with a phase ``head`` before
its first phase that trains the encoder, and the pooling and pairs of the probe. Relations between methods
(``control_for``, ``match`` ...) are kept among the copies, so a control named by one of them has to be named too.
From a drawn head, few rows do not fit a regression, and a comparison of methods compares how they recover from it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
HEAD = {"regularisers": {"linear_head": {}}, "training": {"epochs": 0}}


def from_solved_head(method: dict[str, Any]) -> dict[str, Any]:
    """The method's YAML with a probe's head to start from; ``<name>`` becomes ``<name>_lp`` in its relations."""
    copy = {key: value for key, value in method.items() if key not in ("phases", "regularisers", "training")}
    copy["description"] = f"{method['description']}, from a linear probe's head"
    for relation in ("control_for", "variant_of"):
        if relation in copy:
            copy[relation] = f"{copy[relation]}_lp"
    if "combines" in copy:
        copy["combines"] = [f"{name}_lp" for name in copy["combines"]]
    copy["model"] = copy.get("model", {}) | {"pooling": "mean", "pairs": "separately"}
    training = dict(method.get("training", {}))
    if isinstance(training.get("steps_factor"), dict):
        training["steps_factor"] = {"match": f"{training['steps_factor']['match']}_lp"}
    only = {"regularisers": method.get("regularisers", {})} | ({"training": training} if training else {})
    phases = method.get("phases") or {"finetune": only}
    unlabelled = {name: phase for name, phase in phases.items() if (phase.get("data") or {}).get("labels") is False}
    if "sources" in copy and not method.get("phases"):
        copy["sources"] = {
            f"phases.finetune.{path}" if path.startswith(("regularisers.", "training.")) else path: source
            for path, source in copy["sources"].items()
        }
    copy["phases"] = unlabelled | {"head": HEAD}
    for name, phase in phases.items():
        if name not in unlabelled:
            copy["phases"][name] = phase | (
                {"start": "head"} if phase.get("start") == "checkpoint" or unlabelled else {}
            )
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("project", type=Path, help="project directory to write to, outside the repository")
    parser.add_argument("methods", nargs="+", metavar="METHOD", help="shipped methods to copy")
    options = parser.parse_args()
    if options.project.resolve() == ROOT:
        parser.error("write to a clone: the copies belong to one comparison, not to the shipped methods")
    for name in options.methods:
        shipped = yaml.safe_load((ROOT / "pipelines" / "methods" / f"{name}.yaml").read_text(encoding="utf-8"))
        target = options.project / "pipelines" / "methods" / f"{name}_lp.yaml"
        target.write_text(yaml.safe_dump(from_solved_head(shipped), sort_keys=False), encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()

"""Phases that are run several times: searches over splits, and soups by the mean or the greedy recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import ConfigError
from regft_core.models.architectures import architecture_of
from regft_core.runs import phase as run_phase
from regft_core.runs import training_run
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.opened_project import open_project
from regft_core.runs.phase import phase_inputs
from regft_core.training.merges import SHIPPED
from tests.runs.conftest import DIVERGES, change, job, runs, train, weights_of, write_method


def soup(merge: str, times: int = 3, **more: Any) -> dict[str, Any]:
    """A method that fine-tunes ``times`` members and averages them."""
    repeat = {"times": times, "merge": merge, "vary": ["order", "noise", "head"]}
    phase = {"data": {"split": 0.6}, "repeat": repeat, "training": {"epochs": 4, "learning_rate": 3.0e-3}}
    return {"phases": {"finetune": {**phase, **more}}}


def members(root: Path, phase: str) -> dict[str, int]:
    """Key -> number of the stored members of a phase."""
    return {k: i["member"] for k, i in runs(root).items() if i["phase"] == phase and i.get("member") is not None}


@pytest.mark.parametrize(("model_type", "recorded"), [("bert", True), ("bart", False), ("deberta-v2", False)])
def test_a_family_that_waits_in_its_own_pass_is_not_recorded(
    project: Path, model_type: str, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph cannot be recorded where the host waits: CUDA would end the run in its second step of a length."""
    change(project, execution={"device": "cuda", "cuda_graphs": True})
    context = Context(job(project, "vanilla"))
    monkeypatch.setattr(run_phase, "family", lambda _: architecture_of(model_type, where="here"))
    assert phase_inputs(context.phase("finetune"), None).cuda_graphs is recorded


def test_members_differ_in_what_the_phase_says_and_in_nothing_else(project: Path) -> None:
    write_method(project, "soup", **soup("mean"))
    context = Context(job(project, "weight_mixup"))
    phase = context.phase("search")
    one, two = (phase_inputs(phase, index) for index in (0, 1))
    assert set(one.train_rows) != set(two.train_rows)
    assert sorted([*one.train_rows, *one.validation_rows]) == list(range(24))
    assert (one.streams["order"], two.streams["order"]) == ("search-0", "search-1")
    assert one.streams["head"] == two.streams["head"] == "head"
    context = Context(job(project, "soup"))
    one, two = (phase_inputs(context.phase("finetune"), index) for index in (0, 1))
    assert one.train_rows == two.train_rows
    assert one.streams["head"] != two.streams["head"]
    heads = [training_run.build(inputs)[0].model.classifier.weight for inputs in (one, two)]
    assert not torch.equal(*heads)


def test_a_mean_soup_is_the_mean_of_its_members(project: Path) -> None:
    write_method(project, "soup", **soup("mean"))
    record = train(project, "soup")
    assert record["status"] == "ok"
    assert record["steps"] == 3 * 4 * 2  # 14 of 24 rows in batches of 8
    merged = weights_of(project, record["key"])
    parts = [weights_of(project, key) for key in members(project, "finetune")]
    assert len(parts) == 3
    for name, value in merged.items():
        mean = sum(part[name].double() for part in parts) / 3
        assert torch.equal(value, mean.to(value.dtype)), name
    assert evaluate(Context(job(project, "soup")), record)["status"] == "ok"


def test_a_greedy_soup_leaves_out_a_member_that_spoils_it() -> None:
    """By hand: what the mean of chosen members scores is read off a table."""
    # Of equal members the first comes first.
    table = {(0,): 0.7, (1,): 0.9, (2,): 0.7, (1, 2): 0.9, (0, 1): 0.9, (0, 1, 2): 0.8}
    parts = [{"weights": {"x": torch.tensor([float(2**index)])}} for index in range(3)]
    means = {round(sum(2.0**i for i in chosen) / len(chosen), 3): value for chosen, value in table.items()}

    def score(member: Any) -> float:
        return means[round(float(member["weights"]["x"]), 3)]

    def chosen(rule: str) -> list[int]:
        merged, choice = SHIPPED[rule].merge(parts, score)
        assert choice["scores"] == [0.7, 0.9, 0.7]
        assert float(merged["weights"]["x"]) == sum(2.0**i for i in choice["chosen"]) / len(choice["chosen"])
        return list(choice["chosen"])

    assert chosen("greedy") == [1, 0]
    # Released: the score of the second mean is the same, which is no reason to keep a member.
    assert chosen("greedy_released") == [1]
    means[1.5] = 0.91
    assert chosen("greedy_released") == [1, 0]


def test_the_variant_of_a_greedy_soup_reaches_the_merge_and_its_key(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that all score alike: recipe 1 of the paper keeps them all, the released code one."""
    monkeypatch.setattr(run_phase, "validation_score", lambda inputs, outcome, task: 0.5)
    content = soup("greedy")
    write_method(project, "soup", **content)
    paper = train(project, "soup")
    assert (paper["soup"]["chosen"], paper["variant"]) == ([0, 1, 2], "paper")
    before = members(project, "finetune")
    content["phases"]["finetune"]["repeat"]["merge"] = "greedy_released"
    write_method(project, "soup", **content)
    released = train(project, "soup")
    assert (released["soup"]["chosen"], released["variant"]) == ([0], "released")
    assert released["key"] != paper["key"]
    assert members(project, "finetune") == before
    one, alone = (weights_of(project, key) for key in (released["key"], min(before, key=before.__getitem__)))
    assert all(torch.equal(one[name], value) for name, value in alone.items())


def test_a_member_that_fails_fails_the_run_and_ends_it(project: Path) -> None:
    write_method(project, "soup", **soup("mean", regularisers=DIVERGES))
    record = train(project, "soup")
    assert record["status"] == "failed"
    assert record["error"].startswith("finetune-0: ")
    assert list(members(project, "finetune").values()) == [0]
    evaluated = evaluate(Context(job(project, "soup")), record)
    assert (evaluated["status"], evaluated["sets"]) == ("failed", {})


MEDIAN = """
from regft_core.training.merges import entrywise


def merge(members, score):
    return entrywise(members, lambda stacked: stacked.median(0).values), {}
"""


def test_a_rule_of_ones_own_merges_and_its_code_is_in_the_key_of_the_merge_alone(project: Path) -> None:
    (project / "merges").mkdir()
    file = project / "merges" / "middle.py"
    file.write_text(MEDIAN)
    write_method(project, "soup", **soup("middle"))
    record = train(project, "soup")
    assert record["status"] == "ok", record["error"]
    of_members = members(project, "finetune")
    parts, merged = [weights_of(project, key) for key in of_members], weights_of(project, record["key"])
    for name, value in merged.items():  # of three, the middle one
        assert torch.equal(value, torch.stack([part[name] for part in parts]).sort(0).values[1]), name
    file.write_text(MEDIAN.replace("median(0).values", "amax(0)"))
    other = train(project, "soup")
    assert other["key"] != record["key"]
    assert members(project, "finetune") == of_members
    file.write_text(MEDIAN.replace("return", "score(members[0])\n    return"))
    assert "SCORES = True" in train(project, "soup")["error"]
    write_method(project, "soup", **soup("midle"))
    with pytest.raises(ConfigError, match="middle"):
        open_project(project)

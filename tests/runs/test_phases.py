"""Chains of phases, and phases that are run several times: what each starts from, trains on, hands over and merges."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from regft_core.errors import ConfigError
from regft_core.models.architectures import architecture_of
from regft_core.runs import phase as run_phase
from regft_core.runs import training_run
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.phase import phase_inputs
from regft_core.runs.train import search
from regft_core.settings.read_project import open_project
from regft_core.training.merges import SHIPPED
from tests.runs.conftest import DIVERGES, change, job, refresh, runs, stored, train, weights_of, write_method
from tests.small_project import TASK

POSTTRAINING = {
    "data": {"size": "full", "labels": False},
    "seed": 0,
    "regularisers": {"masked_lm": {}},
    "training": {"epochs": 1},
}


def start_of(root: Path, method: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """The weights that fine-tuning begins with, search being done."""
    context = Context(job(root, method, seed))
    search(context)
    trainee, _ = training_run.build(phase_inputs(context.phase("finetune"), None))
    return dict(trainee.named_raw())


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in one if not torch.equal(one[name], other[name])}


HEAD = {"classifier.weight", "classifier.bias"}


def test_posttraining_is_done_once_for_all_seeds_and_each_seed_keeps_its_own_head(project: Path) -> None:
    write_method(project, "posttrained", phases={"text": POSTTRAINING, "finetune": {}})
    records = [train(project, "posttrained", seed) for seed in (0, 1)]
    assert records[0]["phases"] == records[1]["phases"]
    assert records[0]["key"] != records[1]["key"]
    text = weights_of(project, records[0]["phases"]["text"])
    plain = [start_of(project, "vanilla", seed) for seed in (0, 1)]
    for seed in (0, 1):
        start = start_of(project, "posttrained", seed)
        assert differing(start, text) <= HEAD  # the encoder is that of the phase ...
        assert differing(start, plain[seed]).isdisjoint(HEAD)  # ... and the head that of the seed
        assert differing(start, plain[seed])
    assert differing(plain[0], plain[1]) == {"classifier.weight"}
    assert any("without their labels" in mark for mark in records[0]["degraded"])


def test_a_phase_without_labels_does_not_see_them(project: Path) -> None:
    phase = {name: value for name, value in POSTTRAINING.items() if name != "seed"}
    write_method(project, "posttrained", phases={"text": phase, "finetune": {}})
    context = Context(job(project, "posttrained"))
    data = context.phase("text").rows
    assert {row.label for row in data.examples} == {0}
    key = context.key("text")
    path = project / "work/datasets/cue_sentence/train.jsonl"
    path.write_text(path.read_text().replace('"label": 1', '"label": 0'))
    context = Context(job(project, "posttrained"))
    assert context.key("text") == key
    path.write_text(path.read_text().replace("the", "teh"))
    assert Context(job(project, "posttrained")).key("text") != key


def test_an_intermediate_task_leaves_its_head_behind(project: Path) -> None:
    stars = {"splits": {"train": "scores.csv", "dev": "scores-dev.csv"}, "labels": list("012345"), "ood": {}}
    other = TASK | stars | {"columns": {"text": "review", "label": "stars"}}
    (project / "pipelines/tasks/other.yaml").write_text(yaml.dump(other))
    phase = {"data": {"task": "other", "size": 16}, "training": {"epochs": 1}}
    write_method(project, "intermediate", phases={"before": phase, "finetune": {}})
    refresh(project)
    records = [train(project, "intermediate", seed) for seed in (0, 1)]
    assert [record["status"] for record in records] == ["ok", "ok"]
    assert any("another task, other" in mark for mark in records[0]["degraded"])
    before = weights_of(project, records[0]["phases"]["before"])
    assert before["classifier.weight"].shape[0] == 6
    start = start_of(project, "intermediate")
    assert {name for name in start if start[name].shape != before[name].shape} == HEAD
    assert all(torch.equal(start[name], before[name]) for name in start if name not in HEAD)
    assert differing(start, start_of(project, "vanilla")).isdisjoint(HEAD)
    assert records[0]["phases"] != records[1]["phases"]  # other rows, another order


def test_a_phase_starts_where_it_says(project: Path) -> None:
    first, second = {"training": {"epochs": 1}}, {"training": {"epochs": 1, "learning_rate": 2.0e-3}}
    chain = {"one": first, "two": second}
    start = {}
    for name, word in (("previous", None), ("one", "one"), ("checkpoint", "checkpoint")):
        finetune = {"start": word} if word else {}
        write_method(project, f"from_{name}", phases={**chain, "finetune": finetune})
        start[name] = start_of(project, f"from_{name}")
        keys = search(Context(job(project, f"from_{name}")))["phases"]
    # Every tensor, the head included: it is trained for the same labels.
    assert differing(start["one"], weights_of(project, keys["one"])) == set()
    assert differing(start["previous"], weights_of(project, keys["two"])) == set()
    assert differing(start["checkpoint"], start_of(project, "vanilla")) == set()


def test_weights_that_a_later_edit_asks_for_are_added(project: Path) -> None:
    """Nothing started from the phase, so it kept none; its key stays the same."""
    chain = {"one": {"training": {"epochs": 1}}, "finetune": {"start": "checkpoint"}}
    write_method(project, "chain", phases=chain)
    first = train(project, "chain")
    assert stored(project, first["phases"]["one"]).tensor_names == []
    write_method(project, "chain", phases={**chain, "finetune": {}})
    second = train(project, "chain")
    assert second["status"] == "ok"
    assert second["phases"] == first["phases"]
    assert stored(project, second["phases"]["one"]).tensor_names == ["weights"]
    write_method(project, "chain", phases={"one": {"training": {"epochs": 2}}, "finetune": {}})
    assert Context(job(project, "chain")).key("finetune") != second["key"]  # it starts from another
    write_method(project, "chain", phases=chain)
    Context(job(project, "chain")).store.prune(budget_bytes=0)
    assert train(project, "chain")["key"] == first["key"]


def test_a_failed_phase_fails_the_run_and_ends_it(project: Path, caplog: Any) -> None:
    write_method(
        project, "breaks", phases={"one": {"regularisers": DIVERGES}, "two": {}, "finetune": {"start": "checkpoint"}}
    )
    caplog.set_level(logging.ERROR)
    searched = search(Context(job(project, "breaks")))
    assert searched["status"] == "failed"
    assert "phase 'one' failed" in searched["error"]
    assert list(searched["phases"]) == ["one"]
    record = train(project, "breaks")
    # A report refuses runs from several places, and this one ran where the others did.
    assert (record["status"], record["environment"]["device"]) == ("failed", "cpu")
    assert {identity["phase"] for identity in runs(project).values()} == {"one"}
    evaluated = evaluate(Context(job(project, "breaks")), record)
    assert (evaluated["status"], evaluated["error"]) == ("failed", record["error"])


def test_whether_a_head_is_taken_over_is_in_the_key(project: Path) -> None:
    """The same labels by another name keep the head; values, or the same seed by a number, do not."""
    same_rows = {"data": {"task": "cue_sentence", "size": 24}}
    write_method(project, "own", phases={"one": {}, "finetune": {}})
    write_method(project, "named", phases={"one": same_rows, "finetune": {}})
    own, named = (Context(job(project, name)) for name in ("own", "named"))
    assert own.key("one") == named.key("one")
    assert own.key("finetune") == named.key("finetune")
    write_method(project, "values", phases={"one": {"data": {"task": "cue_regression"}}, "finetune": {}})
    refresh(project)
    values = Context(job(project, "values"))
    heads = [one.last.start_head for one in (own, named, values)]
    assert heads == [True, True, False]
    assert "other labels" in values.last.dropped_head
    full = {"data": {"size": "full"}}
    write_method(project, "own", phases={"one": full, "finetune": {}})
    write_method(project, "named", phases={"one": {**full, "seed": 0}, "finetune": {}})
    own, named = (Context(job(project, name)) for name in ("own", "named"))
    assert own.key("one") == named.key("one")
    assert own.key("finetune") != named.key("finetune")


# ------------------------------------------------------------------------------------------------------------ members


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

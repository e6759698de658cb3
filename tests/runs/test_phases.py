"""Chains of phases: what each starts from, trains on and hands over, and which later edits leave it alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
import yaml

from regft_core.runs import training_run
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluate
from regft_core.runs.phase import phase_inputs
from regft_core.runs.train import search
from tests.runs.conftest import DIVERGES, job, refresh, runs, stored, train, weights_of, write_method
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


def test_an_edit_of_a_later_phase_leaves_the_earlier_ones(project: Path) -> None:
    first = {"training": {"epochs": 1}, "data": {"split": 0.8}}
    chain = {"one": first, "two": {"training": {"epochs": 1}}, "finetune": {"training": {"epochs": 1}}}
    write_method(project, "chain", phases=chain)

    def keys() -> list[str]:
        context = Context(job(project, "chain"))
        return [context.key(name) for name in ("one", "two", "finetune")]

    one, two, last = keys()
    write_method(project, "chain", phases={**chain, "finetune": {"training": {"epochs": 2}}})
    assert keys()[:2] == [one, two]
    assert keys()[2] != last
    write_method(project, "chain", phases={**chain, "two": {"training": {"epochs": 2}}})
    assert keys()[0] == one
    assert set(keys()[1:]).isdisjoint({two, last})
    write_method(project, "chain", phases={**chain, "two": {**chain["two"], "start": "checkpoint"}})
    assert keys()[0] == one
    assert set(keys()[1:]).isdisjoint({two, last})
    write_method(project, "chain", phases={"two": chain["two"], "one": first, "finetune": chain["finetune"]})
    assert set(keys()).isdisjoint({one, two, last})


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

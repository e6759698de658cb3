"""Answers without steps: the solved head, the constant, the similarity, thresholds, decisions fitted to a metric."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegression

from regft_core import metrics
from regft_core.api import Project
from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.hooks import compose
from regft_core.hooks.registry import discover
from regft_core.kinds import find
from regft_core.kinds._decision import Decision
from regft_core.methods.constant_answer import best_constant, best_odds
from regft_core.methods.label_thresholds import threshold
from regft_core.methods.zero_shot_similarity import ZeroShotSimilarity, ZeroShotSimilarityConfig, to_range
from regft_core.models.heads import last_linear
from regft_core.runs.context import Job
from regft_core.serve.export import export
from regft_core.serve.model import load_served
from regft_core.serve.predict import predict_file
from regft_core.training import linear_solution
from regft_core.training.linear_solution import classify_linearly, fit_decision, regress_linearly
from regft_core.training.logistic import Rows
from regft_core.training.step import BatchStream, FitData
from tests.methods.cases import task
from tests.methods.chain import METHODS, Ran, Runner, method, phase, run_phase
from tests.methods.harness import MAKES, NO_STEPS, Bench, changed, examples, same, source_of
from tests.small_project import TASK, build, predictions, read_csv, write_csv
from tests.tiny import ARCHITECTURES
from tests.training.test_linear_solution import loss_gradient

# --------------------------------------------------------------------------------------------------------- linear head


POOLED: dict[str, Any] = {"pooling": "mean", "separately": True}
SAYING = ("good", "bad", "slow")
FILLING = ("the film", "a movie was", "very long story", "that is it")


def rows(labels: int = 2, kind: str = "classification") -> list[Example]:
    """36 pairs whose label is said by a word; a value is the number of words."""
    found = []
    for i in range(36):
        label = (i * 7) % labels
        text = f"{FILLING[i % 4]} {SAYING[label]} {FILLING[(i * 3) % 4]}"
        second = f"{SAYING[label]} {FILLING[(i + 1) % 4]}"
        value = float(len(text.split())) if kind == "regression" else label
        found.append(Example(idx=str(i), text=text, text_pair=second, label=value))
    return found


def untrained(regularisers: Sequence[tuple[str, dict[str, Any]]] = (), **options: Any) -> Ran:
    """A phase without steps over ``rows``."""
    given = rows(options.get("labels", 2), options.get("kind", "classification"))
    return run_phase(regularisers, training=options.pop("training", NO_STEPS), rows=given, **options)


def solve(*, labels_of_rows: str = "own", **options: Any) -> Ran:
    return untrained([("linear_head", {"labels": labels_of_rows})], **options)


def cross_entropy(outcome: Ran) -> float:
    """Mean loss over the rows in evaluation mode."""
    labels = torch.tensor(outcome.inputs.encoded.labels)
    return float(torch.nn.functional.cross_entropy(torch.from_numpy(outcome.logits()), labels))


def pooled_features(outcome: Ran) -> np.ndarray:
    """[u, v, |u - v|, u * v] of every pair, one text at a time, without the classifier's code."""
    model, vectors = outcome.model, []
    assert outcome.inputs.encoded.rows_per_example == 2
    with torch.no_grad():
        for texts in (outcome.inputs.encoded.input_ids[0::2], outcome.inputs.encoded.input_ids[1::2]):
            tokens = [model.base_model(input_ids=torch.tensor([row])).last_hidden_state[0] for row in texts]
            vectors.append(torch.stack([token.mean(0) for token in tokens]))
    u, v = vectors
    u, v = (vector / vector.square().mean(-1, keepdim=True).sqrt() for vector in (u, v))
    return torch.cat([u, v, (u - v).abs(), u * v], -1).double().numpy()


def only_the_linear_changed(outcome: Ran, **options: Any) -> None:
    plain = untrained(**options)
    outputs = 1 if outcome.inputs.setting.kind == "regression" else len(outcome.inputs.labels or ())
    linear = last_linear(outcome.model, outcome.trained.trainee.sites.head, outputs)
    assert changed(plain.weights, outcome.weights) == {f"{linear}.weight", f"{linear}.bias"}


def test_a_pooled_head_is_the_exact_fit_of_the_pooled_features() -> None:
    outcome = solve(**POOLED, labels=3)
    features = pooled_features(outcome)
    labels = np.asarray(outcome.inputs.encoded.labels)
    weight, bias = (value.detach().double().numpy() for value in outcome.model.classifier.parameters())
    # The mean of real tokens differs from that of a padded batch in the last bits only.
    raw = features @ weight.T + bias
    assert outcome.logits() == pytest.approx(raw, abs=1e-4)
    assert (raw.argmax(1) == labels).mean() > 0.9
    strength = outcome.trained.stack.diagnostics().values[0][2]
    solution = SimpleNamespace(weight=weight, bias=bias, strength=strength)
    assert np.abs(loss_gradient(features, labels, solution, parts=4)).max() < 1e-5
    only_the_linear_changed(outcome, **POOLED, labels=3)


def test_features_stand_in_the_order_of_the_rows_though_longer_rows_are_read_first() -> None:
    run = Bench([("linear_head", {})], **POOLED, rows=40, labels=3, training=NO_STEPS)
    data = FitData(run.trainee, run.setting, run.stream)
    lengths, (features, labels) = run.encoded.lengths, run.method.features(data)
    assert lengths != sorted(lengths, reverse=True)
    streams = [BatchStream(run.encoded, run.trainee, run.setting, "alone", [row]) for row in range(40)]
    alone = [run.method.features(dataclasses.replace(data, stream=stream)) for stream in streams]
    assert labels.tolist() == [int(label) for _, label in alone]
    torch.testing.assert_close(features, torch.cat([vector for vector, _ in alone]), atol=1e-5, rtol=0)


def test_a_regression_head_is_the_ridge_of_the_pooled_features() -> None:
    outcome = solve(**POOLED, kind="regression")
    features, scale = pooled_features(outcome), outcome.trained.trainee.scale
    assert scale is not None  # the model's outputs are those of scaled targets
    values = scale.learned(np.asarray(outcome.inputs.encoded.labels, dtype=np.float64))
    solution = regress_linearly(Rows(features, values), parts=(1.0,) * 4)
    assert outcome.logits() == pytest.approx(features @ solution.weight.T + solution.bias, abs=1e-2)
    weight = outcome.model.classifier.weight.detach().double().numpy()
    far = np.abs(weight - regress_linearly(Rows(features, values)).weight).max()
    assert np.abs(weight - solution.weight).max() < far / 20, "the four parts are scaled apart"
    only_the_linear_changed(outcome, **POOLED, kind="regression")


@pytest.mark.parametrize(
    "architecture", [n if n in MAKES else pytest.param(n, marks=pytest.mark.slow) for n in ARCHITECTURES]
)
def test_a_family_s_own_head_is_fitted_where_it_ends(architecture: str) -> None:
    outcome = solve(architecture=architecture, labels=3)
    only_the_linear_changed(outcome, architecture=architecture, labels=3)
    before = cross_entropy(untrained(architecture=architecture, labels=3))
    assert cross_entropy(outcome) < min(before, np.log(3) + 1e-3)


def test_permuted_labels_are_fitted_to_other_rows() -> None:
    own, permuted = solve(**POOLED), solve(**POOLED, labels_of_rows="permuted")
    labels = np.asarray(own.inputs.encoded.labels)
    right = [(outcome.logits().argmax(1) == labels).mean() for outcome in (own, permuted)]
    assert right[0] > 0.9 > right[1]
    assert same(permuted.weights, solve(**POOLED, labels_of_rows="permuted").weights)


def test_the_package_s_head_reads_the_features_as_they_are() -> None:
    outcome = untrained([("linear_head", {"head": "package"})], **POOLED, labels=3)
    features, labels = pooled_features(outcome), np.asarray(outcome.inputs.encoded.labels)
    theirs = LogisticRegression().fit(features.astype(np.float32), labels)
    probabilities = torch.from_numpy(outcome.logits()).double().softmax(-1).numpy()
    # Its solver stops early, so the last bits of features show; the other head's probabilities differ by 0.1.
    assert probabilities == pytest.approx(theirs.predict_proba(features), abs=0.01)
    other = torch.from_numpy(solve(**POOLED, labels=3).logits()).double().softmax(-1).numpy()
    assert np.abs(probabilities - other).max() > 0.05
    assert outcome.trained.stack.diagnostics().values[0][2] == 1 / 36
    only_the_linear_changed(outcome, **POOLED, labels=3)


# ----------------------------------------------------------------------------------------------------- constant answer


def test_frequencies_by_hand() -> None:
    # 3, 4 and 1 of 8 rows.
    assert best_constant([1, 0, 1, 2, 0, 1, 0, 1], 3) == pytest.approx([math.log(v) for v in (3 / 8, 4 / 8, 1 / 8)])
    # Class 1 has no row: it counts as half of one, of 4.5.
    assert best_constant([0, 0, 2, 2], 3) == pytest.approx([math.log(v) for v in (2 / 4.5, 0.5 / 4.5, 2 / 4.5)])
    assert best_constant([1.0, 2.0, 4.5], None) == pytest.approx([2.5])


def test_a_value_is_the_mean_and_only_the_rows_that_are_trained_on_count() -> None:
    run = Bench([("constant_answer", {})], kind="regression", pair=True, training=NO_STEPS, rows=6)
    expected = sum(run.encoded.labels) / 6
    assert answered(run, 1).item() == pytest.approx(expected)
    run.stream.rows = [0, 1]
    own = sum(run.encoded.labels[:2]) / 2
    assert own != pytest.approx(expected)
    assert answered(run, 1).item() == pytest.approx(own)


def answered(run: Bench, rows: int) -> np.ndarray:
    """[rows, K] answers to texts that it was not fitted on."""
    run.stack.fit(run.trainee, FitData(run.trainee, run.setting, run.stream))
    return run.stack.predict(None, run.stack.keep(run.trainee), examples(rows))


# ------------------------------------------------------------------------------------------------ zero shot similarity


def test_the_mapping_by_hand() -> None:
    cosine = torch.tensor([1.0, 0.5, 0.0, -0.5])
    assert to_range(cosine, 0.0, (0.0, 5.0)).tolist() == [5.0, 2.5, 0.0, -2.5]
    assert to_range(cosine, -1.0, (1.0, 5.0)).tolist() == [5.0, 4.0, 3.0, 2.0]


def similarity(**options: Any) -> Bench:
    form = {"kind": "regression", "pair": True, "training": NO_STEPS, "rows": 4}
    return Bench([("zero_shot_similarity", {})], **form, **options)


def embed(run: Bench, text: str) -> torch.Tensor:
    """The mean over the tokens of one text."""
    inputs = run.tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
    with torch.no_grad():
        tokens: torch.Tensor = run.model.eval().base_model(**inputs)[0][0]
    return tokens.mean(0)


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "mpnet", "bart"])
def test_answers_are_cosines_of_single_texts(architecture: str) -> None:
    run, given = similarity(architecture=architecture), examples(9, pair=True, kind="regression")
    answers = run.stack.predict(run.trainee, run.stack.keep(run.trainee), given)
    assert answers.shape == (9, 1)
    for row, example in zip(answers[:, 0], given, strict=True):
        u, v = embed(run, example.text), embed(run, str(example.text_pair))
        assert float(row) == pytest.approx(5 * float(u @ v) / float(u.norm() * v.norm()), abs=1e-4)


def test_embeddings_are_means_over_windows_behind_the_instruction() -> None:
    run = similarity(pooling="mean", max_length=8, reading=Reading("the ", windows=2, stride=1))
    # Five letters fit into a row.
    answers = run.stack.predict(run.trainee, run.stack.keep(run.trainee), [Example("0", "a b c d e f g h", "g o", 0.0)])
    u, v = (embed(run, "the a b c d e") + embed(run, "the d e f g h")) / 2, embed(run, "the g o")
    assert float(answers[0, 0]) == pytest.approx(5 * float(u @ v) / float(u.norm() * v.norm()), abs=1e-4)


def test_tasks_without_two_texts_or_a_range_are_refused() -> None:
    values = task("regression")
    single = values.columns.model_copy(update={"text_pair": None})
    assert ZeroShotSimilarity.check_task(ZeroShotSimilarityConfig(), values) == []
    for changes in ({"columns": single}, {"range": None}):
        assert len(ZeroShotSimilarity.check_task(ZeroShotSimilarityConfig(), values.model_copy(update=changes))) == 1


# ------------------------------------------------------------------------------------------------------- several labels

#: Regularisers that have no meaning without one class an example, or are for values.
REFUSED = ("verbaliser", "label_smoothing", "contrastive", "supervised_contrastive", "zero_shot_similarity", "uda")
LABELS = 3


@pytest.mark.parametrize("name", METHODS)
def test_what_has_no_meaning_is_refused_by_name(name: str) -> None:
    given = method(name)
    tasks = {phase.data.task: task("classification") for phase in given.phases if phase.data.task is not None}
    problems = compose.check_method(discover(), given, task("multi_label"), None, tasks)
    refusing = {known for known in REFUSED if any(f"'{known}'" in said and "multi_label" in said for said in problems)}
    assert refusing == {r for phase in given.phases for r, _ in phase.regularisers if r in REFUSED}
    assert bool(problems) == (bool(refusing) or name == "self_training")  # its targets are single labels


def test_a_constant_answers_with_the_log_odds_of_each_label() -> None:
    present = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 1]], dtype=bool)
    # All rows and none count as half a row less and more.
    np.testing.assert_allclose(best_odds(present), np.log([3.5 / 0.5, 0.5 / 3.5, 1.0]))


def test_a_threshold_by_hand() -> None:
    logits = np.array([-2.0, -1.0, -0.5, 0.5])
    assert threshold(logits, np.array([False, True, True, True])) == pytest.approx(-1.5)
    assert threshold(logits, np.array([False, False, False, True])) == 0.0  # as right, and nearest to 0.5
    assert threshold(logits, np.array([False, False, False, False])) == 0.0
    assert threshold(logits, np.array([True, True, True, True])) == pytest.approx(-3.0)


def test_thresholds_move_the_bias_and_nothing_else() -> None:
    runner = Runner(source_of("bert"), kind="multi_label", labels=LABELS, rows=24)

    def run(fit: str) -> dict[str, torch.Tensor]:
        listed = phase([("label_thresholds", {"fit": fit})], split=0.5)
        return runner.run([listed], steps=2)["finetune"].tensors["weights"]

    half, fitted, shared = run("none"), run("label"), run("all")
    moved = changed(half, fitted)
    assert moved == {"classifier.bias"}
    shift = shared["classifier.bias"] - half["classifier.bias"]
    torch.testing.assert_close(shift, shift[:1].expand(LABELS))


def test_a_label_that_no_row_set_aside_has_keeps_its_threshold_and_is_marked() -> None:
    rows = tuple(dataclasses.replace(row, label=int(row.label) & 3) for row in examples(24, labels=8))
    runner = Runner(source_of("bert"), kind="multi_label", labels=LABELS, given=rows)
    stack = runner.run([phase([("label_thresholds", {})], split=0.5)], steps=1)["finetune"].members[0].stack
    assert len(stack.marks()) == 1
    assert {name: value for name, _, value in stack.diagnostics().values}["label_thresholds.2"] == 0.5


def rare(rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Logits [n, 2] that hardly ever claim the rare class, and its labels: one row in ten."""
    draw = np.random.default_rng(seed)
    gold = (np.arange(rows) % 10 == 0).astype(np.int64)
    margin = draw.normal(-2.5 + 1.5 * gold, 0.6)
    return np.stack([-margin / 2, margin / 2], axis=1), gold


def score(decision: Decision | None, logits: Any, gold: Any, metric: str = "f1_macro") -> float:
    decided = logits if decision is None else decision.logits(logits)
    return metrics.find(metric).score(gold, find("classification").predictions(decided, np.arange(2)), 1)


@pytest.mark.parametrize("metric", ["f1", "f1_macro", "matthews"])
def test_offsets_raise_the_metric_on_rows_that_did_not_choose_them(metric: str) -> None:
    decision = fit_decision(find("classification"), *rare(400), metric, 1)
    other = rare(2000, seed=1)
    assert score(decision, *other, metric) > score(None, *other, metric) + 0.2


def test_a_long_tail_does_not_choose_its_offsets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, share, gains = find("classification"), np.arange(1, 16) ** -1.5, [0.0, 0.0]
    shipped = linear_solution.ROWS_FOR_ONE
    for draw in map(np.random.default_rng, range(4)):
        gold = draw.choice(15, 2000, p=share / share.sum())
        features = draw.normal(size=(2000, 50)) + draw.normal(size=(15, 50))[gold] * 0.6
        fit = classify_linearly(Rows(features[:60], gold[:60], classes=15))
        for place, rows in enumerate((shipped, 0)):
            monkeypatch.setattr(linear_solution, "ROWS_FOR_ONE", rows)
            decision = fit_decision(kind, fit.left_out, gold[:60], "f1_macro", None)
            decided = kind.predictions(decision.logits(features @ fit.weight.T + fit.bias)[60:], np.arange(15))
            gains[place] += metrics.find("f1_macro").score(gold[60:], decided, None) / 4
    assert gains[0] > gains[1] + 0.01


def test_rows_that_every_fit_saw_do_not_choose() -> None:
    logits, gold = rare(400)
    unseen = np.full((40, 2), np.nan)
    chosen = fit_decision(find("classification"), logits, gold, "f1_macro", 1)
    # Labels in the shares of the others: only the directions know how many rows a class has.
    more = np.vstack([logits, unseen]), np.r_[gold, gold[:40]]
    assert fit_decision(find("classification"), *more, "f1_macro", 1) == chosen


def test_of_several_labels_one_number_serves_all_and_no_row_is_empty() -> None:
    draw = np.random.default_rng(0)
    present = draw.random((300, 3)) < 0.3
    present[~present.any(axis=1), 0] = True
    logits = draw.normal(-2.0 + 1.5 * present, 0.5)
    gold = (present @ (1 << np.arange(3))).astype(np.uint64)
    kind, every = find("multi_label"), np.arange(3)
    decision = fit_decision(kind, logits, gold, "f1_micro", None)
    decided = kind.predictions(decision.logits(logits), every)
    f1 = metrics.find("f1_micro").score
    assert decision.at_least_one
    assert (decided != 0).all()
    assert f1(gold, decided, None) > f1(gold, kind.predictions(logits, every), None) + 0.2
    gold[0] = 0
    assert not fit_decision(kind, logits, gold, "f1_micro", None).at_least_one


@pytest.mark.parametrize("kind", ["classification", "multi_label"])
def test_probabilities_decide_as_logits_do(kind: str) -> None:
    logits = np.random.default_rng(0).normal(-1, 2, (200, 3))
    decision, names = Decision((0.5, -1.0, 2.0), at_least_one=kind == "multi_label"), ("a", "b", "c")
    decided = find(kind).predictions(decision.logits(logits), np.arange(3))
    for temperature in (1.0, 2.5):
        scores = find(kind).scores(logits / temperature, np.arange(3), 3)
        deciding = (decision.at(temperature).scores(row, one_label=kind == "classification") for row in scores)
        assert [find(kind).answer(row, names) for row in deciding] == [find(kind).shown(one, names) for one in decided]


def test_the_row_of_a_class_that_has_no_other_is_in_every_fit() -> None:
    draw = np.random.default_rng(0)
    labels = np.r_[np.arange(60) % 2, 2]
    features = draw.normal(0, 1, (61, 4)) + 3 * np.eye(4)[labels]
    alone = classify_linearly(Rows(features[:60], labels[:60], 3))
    solution = classify_linearly(Rows(features, labels, 3))
    assert solution.strength <= alone.strength * 10  # chosen, not 1 / n
    assert np.isnan(solution.left_out).any(axis=1).tolist() == [False] * 60 + [True]
    assert (features[60] @ solution.weight.T + solution.bias).argmax() == 2


WORDS = ("film", "story", "actor", "the", "was", "it")


def review(number: int, draw: random.Random) -> tuple[str, str]:
    """One row in eight is good; what says so is in most of these rows, and in some of the others."""
    label = "good" if number % 8 == 0 else "bad"
    says = draw.random() < (0.8 if label == "good" else 0.1)
    return " ".join([*draw.choices(WORDS, k=5), *(["splendid"] if says else [])]), label


def made(folder: Path, method: str, metric: str, judged: str = "bad") -> Path:
    """A project whose rows are rarely good; the first development row has the label ``judged``."""
    task = TASK | {"metrics": [metric, "accuracy"][: 1 + (metric != "accuracy")], "primary": metric, "ood": {}}
    grid, report = {"sizes": [160], "seeds": [1]}, {"reference": method}
    build(folder, tasks={"reviews": task}, methods=[method], grid=grid, report=report)
    draw = random.Random(0)
    train, dev = ([review(n, draw) for n in range(160)] for _ in range(2))
    for name, rows in (("train", train), ("dev", [*dev[:-8], *((text, judged) for text, _ in dev[-8:])])):
        write_csv(folder / "data" / f"{name}.csv", [("review", "verdict"), *rows])
    Project.open(folder).run(method, "reviews")
    return folder


def offsets(folder: Path) -> list[list[float]]:
    return [load_file(file)["offsets"].tolist() for file in (folder / ".regft").rglob("decision.safetensors")]


@pytest.mark.parametrize("method", ["tfidf_logistic", "combination"])
def test_every_answer_is_decided_as_its_rows_were_evaluated(tmp_path: Path, method: str) -> None:
    root = made(tmp_path / "one", method, "f1_macro")
    (chosen,) = offsets(root)
    assert chosen[1] > chosen[0]
    folder = export(Job(str(root), method, "reviews", "160", 1), tmp_path / "exported")
    predict_file(load_served(folder, "cpu"), root / "data" / "dev.csv", tmp_path / "out.csv")
    evaluated = predictions(root, method, "reviews", size="160")
    predicted = [("bad", "good").index(row["prediction"]) for row in read_csv(tmp_path / "out.csv")]
    assert predicted == [row["prediction"] for row in evaluated]
    # The decision is another than that of the most probable label, and the probabilities are as they were.
    largest = [int(np.argmax(row["scores"])) for row in evaluated]
    assert sum(predicted) > sum(largest)
    assert json.loads((folder / "regft.json").read_text())["offsets"] == chosen


def test_rows_that_judge_choose_no_offset_and_accuracy_needs_none(tmp_path: Path) -> None:
    one, other = (made(tmp_path / judged, "tfidf_logistic", "f1_macro", judged) for judged in ("bad", "good"))
    assert len(offsets(one)) == 1
    assert offsets(one) == offsets(other)
    assert offsets(made(tmp_path / "accuracy", "tfidf_logistic", "accuracy")) == []

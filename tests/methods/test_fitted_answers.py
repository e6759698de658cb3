"""Answers without steps: the solved head, the constant, the similarity, thresholds; tasks of several labels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.hooks import compose
from regft_core.hooks.registry import discover
from regft_core.methods.constant_answer import best_constant, best_odds
from regft_core.methods.label_thresholds import threshold
from regft_core.methods.zero_shot_similarity import ZeroShotSimilarity, ZeroShotSimilarityConfig, to_range
from regft_core.models.heads import last_linear
from regft_core.training.linear_solution import regress_linearly
from regft_core.training.logistic import Rows
from regft_core.training.step import BatchStream, FitData
from tests.methods.cases import task
from tests.methods.chain import METHODS, Ran, Runner, method, phase, run_phase
from tests.methods.harness import MAKES, NO_STEPS, Bench, changed, examples, same, source_of
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
    changed = {name for name, value in plain.weights.items() if not torch.equal(value, outcome.weights[name])}
    outputs = 1 if outcome.inputs.setting.kind == "regression" else len(outcome.inputs.labels or ())
    linear = last_linear(outcome.model, outcome.trained.trainee.sites.head, outputs)
    assert changed == {f"{linear}.weight", f"{linear}.bias"}


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
    alone = [run.method.features(dataclasses.replace(data, stream=one_row(run, row))) for row in range(40)]
    assert labels.tolist() == [int(label) for _, label in alone]
    torch.testing.assert_close(features, torch.cat([vector for vector, _ in alone]), atol=1e-5, rtol=0)


def one_row(run: Bench, row: int) -> BatchStream:
    return BatchStream(run.encoded, run.trainee, run.setting, "alone", [row])


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

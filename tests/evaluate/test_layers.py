"""States of every layer for every family; token similarity and probes per layer, where the answer is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.data.batches import collate, padding_of
from regft_core.data.examples import Example
from regft_core.evaluate.analyses.layer_probes import drawn, features, judged, trained_heads
from regft_core.evaluate.analyses.token_similarity import similarity
from regft_core.evaluate.analysis_result import RUN, Unfit
from regft_core.evaluate.evaluated import OtherRows
from regft_core.evaluate.hidden import embedding_output, layer_states, pooled, summaries
from regft_core.kinds import find
from regft_core.models.sites import classify
from regft_core.rng import derive
from tests.evaluate.tiny_run import TinyModel, evaluated, finished, other_task, run_of
from tests.methods.harness import examples
from tests.tiny import ARCHITECTURES


def test_tokens_that_are_the_same_have_similarity_1_and_orthogonal_ones_0() -> None:
    same = torch.ones(1, 4, 3)
    across = torch.eye(3).unsqueeze(0)
    opposite = torch.tensor([[[1.0, 0.0], [-2.0, 0.0]]])
    assert similarity(same, torch.ones(1, 4)).item() == pytest.approx(1)
    assert similarity(across, torch.ones(1, 3)).item() == pytest.approx(0, abs=1e-12)
    assert similarity(opposite, torch.ones(1, 2)).item() == pytest.approx(-1)
    states = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    for row, (own, real) in enumerate(zip(states, mask)):
        units = torch.nn.functional.normalize(own[real.bool()], dim=-1)
        cosines = units @ units.T
        count = len(units)
        expected = (cosines.sum() - cosines.trace()) / (count * (count - 1))
        assert similarity(states, mask)[row].item() == pytest.approx(float(expected), abs=1e-6)
    assert similarity(same[:, :1], torch.ones(1, 1)).isnan().all()


def test_the_numbers_are_those_of_the_last_layer_of_both_models() -> None:
    trained = TinyModel()
    with torch.no_grad():
        for weights in trained.pretrained.parameters():
            weights.mul_(2.0)
    result = evaluated("token_similarity", trained, finished(trained))
    _, *last = result.tables["dev"]["layers"].rows[-1]
    assert last[0] != pytest.approx(last[1])
    assert list(result.scalars["dev"].values()) == last


def probing(other: OtherRows, trained: TinyModel | None = None, **asked: Any) -> Any:
    """A run that heads are trained in, without its evaluation's ``run``."""
    return run_of("layer_probes", trained or TinyModel(), others={"t": other}, tasks=["t"], **asked)


def test_heads_are_those_of_a_loop_over_layers_with_a_linear_each() -> None:
    """Trained side by side they are what torch trains one by one: AdamW, no decay, batches in the same order."""
    other, generator = words("t"), torch.Generator().manual_seed(1)
    vectors, labels = torch.randn(3, 20, 5, generator=generator), torch.arange(20) % 2
    run = probing(other, batch_size=6, epochs=2, learning_rate=0.01)
    weight, bias = trained_heads(vectors, labels, 2, find("classification"), run, other)
    scores, rows = [], other.examples[:20]
    for layer in range(3):
        draws = torch.Generator().manual_seed(derive(0, "layer_probes.heads", "t"))
        head = torch.nn.Linear(5, 2)
        with torch.no_grad():
            head.weight.copy_((torch.randn((5, 2), generator=draws) * 0.02).T)
            head.bias.zero_()
        optimizer = torch.optim.AdamW(head.parameters(), lr=0.01, weight_decay=0.0)
        for _ in range(2):
            for batch in torch.randperm(20, generator=draws).split(6):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(head(vectors[layer, batch]), labels[batch]).backward()
                optimizer.step()
        torch.testing.assert_close(weight[layer].T, head.weight.detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(bias[layer, 0], head.bias.detach(), atol=1e-6, rtol=1e-5)
        scores.append(float((head(vectors[layer]).argmax(1) == labels).double().mean()))
    assert scores[0] != scores[-1]
    assert judged(run, other, vectors, rows, vectors, rows) == pytest.approx(scores)


def words(task: str, kind: str = "classification", count: int = 80) -> OtherRows:
    """Texts of which half hold a word that decides the label; every fourth judges."""
    rows = []
    for i in range(count):
        label = i % 2
        rest = ["plot", "actor", "scene", "the", "is", "was"][: i % 5] + ["a"] * (i // 2 % 40)
        text = " ".join(["good" if label else "bad", "film", *rest])
        rows.append(Example(f"r{i}", text, None, label if kind != "regression" else i / 7))
    names, metric = (("no", "yes"), "accuracy") if kind == "classification" else ((), "pearson")
    cut = 3 * count // 4
    return OtherRows(other_task(kind, names or None, metric), rows[:cut], rows[cut:])


def test_probes_of_another_task() -> None:
    trained = TinyModel()
    others = {"cue_a": words("cue_a", count=160), "cue_b": words("cue_b", "regression")}
    options: dict[str, Any] = {"tasks": ["cue_a", "cue_b"], "learning_rate": 0.03, "epochs": 20, "pooling": "mean"}
    result = evaluated("layer_probes", trained, finished(trained), others=others, **options)
    table = result.tables[RUN]["probes"]
    assert [row[:2] for row in table.rows] == [(task, layer) for task in ("cue_a", "cue_b") for layer in range(3)]
    # The label is a word of the text, so the embeddings' mean tells it; the model is the pretrained one.
    assert table.rows[0][2] >= 0.9  # type: ignore[operator]
    assert all(row[2] == row[3] for row in table.rows)
    assert result.scalars[RUN]["cue_a.best"] == max(row[2] for row in table.rows[:3])  # type: ignore[type-var]
    assert result.scalars[RUN]["cue_a.mean"] == pytest.approx(sum(row[2] for row in table.rows[:3]) / 3)  # type: ignore[misc]


def test_rows_that_train_and_judge_are_limited_and_drawn_by_the_seed() -> None:
    other = words("t")
    assert drawn(other.examples, None, probing(other), "t") != list(other.examples)
    draws = [
        drawn(other.examples, 20, probing(other, TinyModel(seed=i), seed=seed), "t")
        for i, seed in ((0, 0), (1, 0), (0, 1))
    ]
    assert len(draws[0]) == 20
    assert draws[0] == draws[1] != draws[2]
    few = OtherRows(other_task(), other.examples[:1], other.dev)
    trained = TinyModel()
    with pytest.raises(Unfit, match="task 't' has 1 training rows and 20 to judge by, too few"):
        evaluated("layer_probes", trained, finished(trained), others={"t": few}, tasks=["t"])


@pytest.mark.parametrize("architecture", ["bert", "bart"])
def test_heads_of_the_last_layer_read_what_the_models_own_head_reads(architecture: str) -> None:
    trained, rows = TinyModel(architecture), examples(6)
    batch = collate(trained.encode(rows), range(6), padding_of(trained.tokenizer), "classification")
    assert len(set(batch.attention_mask.sum(1).tolist())) > 1
    own = features(probing(words("t"), trained), trained.model, rows)[-1]
    torch.testing.assert_close(own, summaries(trained.model, batch, "cls"), atol=1e-5, rtol=1e-4)


def batch_of(trained: TinyModel, count: int = 4) -> Any:
    return next(trained.batches(trained.encode(examples(count, pair=trained.per_example == 2))))


def hooks_of(model: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_family_shows_its_layers_and_is_left_as_it_was(architecture: str) -> None:
    trained = TinyModel(architecture)
    batch, before = batch_of(trained), hooks_of(trained.model)
    with torch.no_grad():
        logits, last = classify(trained.model, batch.model_inputs(), need_hidden=True)
    states = layer_states(trained.model, batch)
    rows, width = batch.input_ids.shape
    assert len(states) == (5 if architecture == "bart" else 3)
    assert all(one.shape[:2] == (rows, width) for one in states)
    torch.testing.assert_close(states[-1], last)
    assert embedding_output(trained.model, batch).shape[:2] == (rows, width)
    assert hooks_of(trained.model) == before
    with torch.no_grad():
        assert torch.equal(classify(trained.model, batch.model_inputs())[0], logits)
    assert all(parameter.grad is None for parameter in trained.model.parameters())


def test_states_are_those_of_transformers() -> None:
    trained = TinyModel()
    batch = batch_of(trained)
    with torch.no_grad():
        expected = trained.model.bert(**batch.model_inputs(), output_hidden_states=True).hidden_states
    for own, theirs in zip(layer_states(trained.model, batch), expected, strict=True):
        torch.testing.assert_close(own, theirs)
    torch.testing.assert_close(embedding_output(trained.model, batch), expected[0])


def test_pairs_in_two_rows_are_pooled_as_their_head_reads_them() -> None:
    trained = TinyModel(separately=True)
    batch = batch_of(trained)
    vectors = pooled(trained.model, layer_states(trained.model, batch)[-1], batch, "mean")
    assert vectors.shape == (len(batch.labels), 4 * 32)
    logits = trained.model.classifier(vectors)
    torch.testing.assert_close(logits, classify(trained.model, batch.model_inputs())[0])

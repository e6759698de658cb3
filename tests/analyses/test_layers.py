"""Token similarity and probes per layer, against states whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from regft_core.analyses.layer_probes import probed
from regft_core.analyses.token_similarity import similarity
from regft_core.data.examples import Example
from regft_core.scoring.evaluated import OtherRows
from regft_core.scoring.findings import RUN, Unfit
from tests.analyses.tiny_run import TinyModel, finished, found
from tests.methods.harness import examples


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


def test_layers_of_a_model_whose_layers_write_the_same_everywhere() -> None:
    trained = TinyModel()
    last = trained.model.bert.encoder.layer[-1]
    last.forward = lambda hidden, *args, **kwargs: torch.ones_like(hidden)
    table = found("token_similarity", trained, finished(trained)).tables["dev"]["layers"]
    assert [row[0] for row in table.rows] == [0, 1, 2]
    assert table.rows[2][1] == pytest.approx(1)
    assert table.rows[2][2] < 1  # type: ignore[operator]
    assert [row[1] for row in table.rows[:2]] == pytest.approx([row[2] for row in table.rows[:2]])


def test_a_probe_is_perfect_on_separable_features_and_at_chance_on_noise() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(3, size=300)
    features = rng.normal(size=(300, 5)) * 0.1
    features[np.arange(300), gold] += 5
    assert probed(features, gold, 150, "classification") == 1.0
    assert probed(rng.normal(size=(600, 5)), rng.integers(2, size=600), 300, "classification") == pytest.approx(
        0.5, abs=0.12
    )
    values = features @ np.array([1.0, 2.0, 3.0, 0.0, 0.0])
    assert probed(features, values, 150, "regression") > 0.99
    assert probed(np.zeros((10, 2)), np.arange(10.0), 5, "regression") == 0.0
    assert probed(features, np.zeros(300, dtype=int), 150, "classification") == 1.0


def words(task: str, kind: str = "classification", count: int = 80) -> OtherRows:
    """Texts of which half hold a word that decides the label."""
    rows = []
    for i in range(count):
        label = i % 2
        rest = ["plot", "actor", "scene", "the", "is", "was"][: i % 5] + ["a"] * (i // 2 % 40)
        text = " ".join(["good" if label else "bad", "film", *rest])
        rows.append(Example(f"r{i}", text, None, label if kind != "regression" else i / 7))
    return OtherRows(task, kind, ("no", "yes") if kind == "classification" else (), rows)


def test_probes_of_another_task() -> None:
    trained = TinyModel()
    others = {"cue_a": words("cue_a"), "cue_b": words("cue_b", "regression")}
    result = found(
        "layer_probes", trained, finished(trained), others=others, tasks=["cue_a", "cue_b"], rows=40, test_rows=30
    )
    table = result.tables[RUN]["probes"]
    assert [row[:2] for row in table.rows] == [(task, layer) for task in ("cue_a", "cue_b") for layer in range(3)]
    # The label is a word of the text, so the embeddings' mean tells it; the model is the pretrained one.
    assert table.rows[0][2] > 0.9  # type: ignore[operator]
    assert all(row[2] == pytest.approx(row[3]) for row in table.rows)
    assert result.scalars[RUN]["cue_a.best"] == max(row[2] for row in table.rows[:3])  # type: ignore[type-var]
    again = found(
        "layer_probes", trained, finished(trained), others=others, tasks=["cue_a", "cue_b"], rows=40, test_rows=30
    )
    assert again == result


def test_no_text_both_fits_and_judges_a_probe() -> None:
    trained = TinyModel()
    same = OtherRows(
        "t", "classification", ("no", "yes"), [Example(f"r{i}", "good film", None, i % 2) for i in range(50)]
    )
    with pytest.raises(Unfit, match="task 't' has 50 training rows, too few"):
        found("layer_probes", trained, finished(trained), others={"t": same}, tasks=["t"])


def test_another_encoder_than_the_pretrained_one_gives_other_probes() -> None:
    trained = TinyModel()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trained.model.bert.encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    rows: Any = (
        found("layer_probes", trained, finished(trained), others={"t": words("t")}, tasks=["t"], rows=40)
        .tables[RUN]["probes"]
        .rows
    )
    assert rows[0][2] == rows[0][3]
    assert [row[2] for row in rows[1:]] != [row[3] for row in rows[1:]]
    assert len(examples(2)) == 2

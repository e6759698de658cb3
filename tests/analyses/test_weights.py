"""Sensitivity of weights and attention of weight mixup, on arrays with known answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regft_core.analyses.attention import coefficients
from regft_core.analyses.sensitivity import concentration, gini, histogram
from regft_core.scoring.findings import RUN, Unfit
from tests.analyses.tiny_run import TinyModel, finished, found


def test_counts_of_the_histogram_are_those_of_the_entries() -> None:
    rows = histogram(np.array([0.0, 1e-7, 1.5e-7, 2e-5, 0.011]), 1).rows
    assert [(row[0], row[1]) for row in rows] == [(-6.5, 2), (-5.5, 0), (-4.5, 1), (-3.5, 0), (-2.5, 0), (-1.5, 1)]
    assert [row[2] for row in rows] == pytest.approx([0.4, 0, 0.2, 0, 0, 0.2])
    values = np.exp(np.random.default_rng(0).normal(-12, 3, 5000))
    assert sum(row[1] for row in histogram(values, 4).rows) == 5000  # type: ignore[misc]
    assert histogram(np.zeros(3), 4).rows == ()


def test_borders_do_not_depend_on_the_values() -> None:
    low, high = (histogram(np.array(values), 4).rows for values in ([1e-6, 1e-4], [1e-5, 1e-4, 1e-2]))
    shared = {row[0] for row in low} & {row[0] for row in high}
    assert len(shared) > 3
    assert all(round((row[0] * 4 - 0.5) % 1, 6) in (0.0, 1.0) for row in (*low, *high))  # type: ignore[operator]


def test_concentration_of_equal_entries_is_the_diagonal_and_of_a_single_one_a_step() -> None:
    equal = concentration(np.ones(1000))
    assert [row[1] for row in equal.rows] == pytest.approx([row[0] for row in equal.rows])
    single = concentration(np.array([5.0] + [0.0] * 999))
    assert [row[1] for row in single.rows] == [0.0] + [1.0] * (len(single.rows) - 1)
    assert gini(np.ones(1000)) == pytest.approx(0, abs=1e-12)
    assert gini(np.array([5.0] + [0.0] * 999)) == pytest.approx(0.999)
    assert gini(np.array([3.0, 1.0])) == pytest.approx(0.25)
    assert gini(np.zeros(4)) == 0.0


def test_sensitivity_is_read_off_what_pats_kept() -> None:
    trained = TinyModel()
    trained.kept = {
        "pats.sensitivity/a": torch.tensor([[1e-3, 0.0], [-2e-3, 1e-5]]),
        "pats.sensitivity/b": torch.tensor([4e-3]),
        "tdt.unit.bias": torch.tensor([9.0]),
    }
    result = found("sensitivity", trained, finished(trained))
    values = np.array([1e-3, 0, 2e-3, 1e-5, 4e-3])
    assert result.scalars[RUN]["sd"] == pytest.approx(values.std(), rel=1e-6)
    assert result.scalars[RUN]["mean"] == pytest.approx(values.mean(), rel=1e-6)
    assert result.scalars[RUN]["zeros"] == 1
    assert result.over_sizes == ("sd",)
    with pytest.raises(Unfit, match="keeps the sensitivity"):
        found("sensitivity", TinyModel(), finished(trained))


def test_attention_by_layer() -> None:
    trained = TinyModel()
    a1, a2 = torch.full((32, 1), 0.5), torch.full((1, 32), 0.8)
    names = [f"bert.encoder.layer.{layer}.attention.self.query.weight" for layer in (0, 1)]
    trained.handed = {
        f"weight_mixup.attention/{name}/{key}": t for name in names for key, t in (("a1", a1), ("a2", a2))
    }
    trained.handed |= {
        "weight_mixup.attention/bert.pooler.dense.weight/a1": torch.ones(32, 1),
        "weight_mixup.attention/bert.pooler.dense.weight/a2": torch.ones(1, 32),
        "weight_mixup.form": torch.tensor(0.0),
        "fisher.mask/x": torch.ones(2),
    }
    result = found("attention", trained, finished(trained))
    rows = result.tables[RUN]["layers"].rows
    assert [row[:2] for row in rows] == [
        ("attention.self.query", 0),
        ("attention.self.query", 1),
        ("bert.pooler.dense", None),
    ]
    assert [row[2] for row in rows] == pytest.approx([0.4, 0.4, 1.0])
    assert [row[3] for row in rows] == pytest.approx([0.1, 0.1, 0.0])
    assert result.scalars[RUN]["task_weight"] == pytest.approx(0.6)
    with pytest.raises(Unfit, match="no phase before fine-tuning learned an attention"):
        found("attention", TinyModel(), finished(trained))


@pytest.mark.parametrize(
    ("form", "state", "expected"),
    [
        (1, {"a1": torch.full((2, 1), 0.5), "a2": torch.full((1, 3), 0.5)}, (0.25, 0.75)),
        (2, {"a": torch.tensor([[0.0, 1.0], [0.5, 0.5]])}, (0.5, 0.5)),
        (0, {"a1": torch.full((2, 2), 0.5), "a2": torch.full((2, 3), 0.5)}, (0.25, 0.25)),
    ],
)
def test_coefficients_of_every_form(form: int, state: dict[str, torch.Tensor], expected: tuple[float, float]) -> None:
    kept = {f"attention/w/{key}": value for key, value in state.items()} | {"form": torch.tensor(float(form))}
    assert coefficients(kept)["w"] == pytest.approx(expected)

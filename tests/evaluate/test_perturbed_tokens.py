from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regft_core.data.examples import Example
from regft_core.evaluate.analyses.deletion import without
from regft_core.evaluate.analyses.robustness import perturbed
from regft_core.evaluate.analysis_result import Unfit
from regft_core.evaluate.hidden import editable
from tests.evaluate.tiny_run import TinyModel, evaluated, finished


def agreeing(trained: TinyModel, count: int = 12) -> Any:
    """A set whose gold labels are what the model says, but for the first example."""
    gold = finished(trained, count).predictions.copy()
    gold[0] = 1 - gold[0]
    return finished(trained, count, gold=gold.tolist())


def changed(before: Any, after: Any) -> np.ndarray:
    return np.concatenate([np.asarray(a) != np.asarray(b) for a, b in zip(before.input_ids, after.input_ids)])


def test_rate_0_is_the_score_and_so_is_a_rate_too_small_to_hit_anything() -> None:
    trained = TinyModel()
    judged = agreeing(trained)
    result = evaluated("robustness", trained, judged, rates=[1e-12, 1.0], copies=2)
    rows = {row[0]: row[1:] for row in result.tables["dev"]["robustness"].rows}
    assert result.scalars["dev"]["clean"] == pytest.approx(11 / 12)
    assert rows[0.0] == rows[1e-12] == (pytest.approx(11 / 12),) * 3
    mean, lowest, highest = rows[1.0]
    assert mean == result.scalars["dev"]["rate_1"] == pytest.approx((lowest + highest) / 2)  # type: ignore[operator]
    assert set(rows) == {0.0, 1e-12, 1.0}


@pytest.mark.parametrize("separately", [False, True])
def test_sampled_tokens_are_those_of_their_own_input_as_often_as_they_occur(separately: bool) -> None:
    trained = TinyModel(separately=separately)
    texts = ["good film", "bad plot actor", "scene scene the"]
    given = [Example("r", text, "was" if separately else None, 0) for text in texts for _ in range(1500)]
    encoded = trained.encode(given)
    mask = trained.tokenizer.mask_token_id
    other, free = perturbed(encoded, 1.0, 0, mask), editable(encoded)
    for start in (0, 1500, 3000):
        own, drawn = (
            np.array(
                [np.concatenate([np.asarray(r)[f] for r, f in zip(of.rows_of("input_ids", i), free[i])]) for i in rows]
            )
            for of, rows in ((encoded, [start]), (other, range(start, start + 1500)))
        )
        drawn = drawn[drawn != mask]
        assert set(drawn) == set(own.ravel())  # of this input, no other; of both texts of a pair
        for token in np.unique(own):
            share = (own == token).mean()
            assert (drawn == token).mean() == pytest.approx(share, abs=5 * np.sqrt(share / drawn.size))


def test_half_of_the_rate_is_masked_and_a_larger_rate_replaces_the_same_and_more() -> None:
    trained = TinyModel()
    encoded = trained.encode([example for _ in range(100) for example in finished(trained).examples])
    mask = trained.tokenizer.mask_token_id
    free = np.concatenate([row for rows in editable(encoded) for row in rows])
    assert mask not in np.concatenate(encoded.input_ids)[free]
    after = np.concatenate(perturbed(encoded, 0.6, 0, mask).input_ids)
    assert (after == mask)[free].mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / free.sum()))
    assert not (after == mask)[~free].any()
    low, high = perturbed(encoded, 0.3, 0, mask), perturbed(encoded, 0.6, 0, mask)
    assert low == perturbed(encoded, 0.3, 0, mask) != perturbed(encoded, 0.3, 1, mask)
    hit = changed(encoded, low)
    assert np.array_equal(np.concatenate(low.input_ids)[hit], np.concatenate(high.input_ids)[hit])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tokens of every text that models read from now on, call by call."""
    seen: list[Any] = []
    own = TinyModel.predict
    monkeypatch.setattr(
        TinyModel, "predict", lambda self, encoded: (seen.append(encoded.input_ids), own(self, encoded))[1]
    )
    return seen


def test_arms_of_one_seed_read_the_same_copies_and_seeds_do_not(read: list[Any]) -> None:
    def run(model_seed: int, seed: int) -> list[Any]:
        trained = TinyModel(seed=model_seed)
        judged = finished(trained)
        read.clear()
        evaluated("robustness", trained, judged, seed=seed, copies=3, rates=[0.5])
        return list(read)

    one = run(0, 0)
    assert len(one) == 3
    assert one == run(5, 0)
    assert one != run(0, 1)
    assert one[0] != one[1]


def test_a_regression_is_scored_by_its_metric() -> None:
    trained = TinyModel(kind="regression")
    trained.confidence = lambda embedding: embedding[..., 0].sigmoid()
    judged = finished(trained)
    for name, table in (("robustness", "robustness"), ("deletion", "deletion")):
        result = evaluated(name, trained, judged, task={"primary": "mse"})
        expected = float(((judged.predictions - judged.gold) ** 2).mean())
        assert result.scalars["dev"]["clean"] == pytest.approx(expected)
        assert "mse" in result.tables["dev"][table].columns


# ------------------------------------------------------------------------------------------------ deletion


@pytest.mark.parametrize("separately", [False, True])
def test_exactly_the_share_of_the_tokens_is_masked_largest_first_and_no_added_token(separately: bool) -> None:
    trained = TinyModel(separately=separately)
    encoded, mask = trained.encode(finished(trained).examples), trained.tokenizer.mask_token_id
    free = editable(encoded)
    # Added tokens have the largest values, and are never masked.
    values = [[np.where(may, np.arange(len(may)), 1e9).astype(float) for may in rows] for rows in free]
    masked = without(encoded, values, 0.4, mask)
    assert masked.segment == encoded.segment
    for index, rows in enumerate(free):
        before, after = (np.concatenate(one.rows_of("input_ids", index)) for one in (encoded, masked))
        flat, places = np.concatenate(values[index]), np.flatnonzero(np.concatenate(rows))
        count = round(0.4 * len(places))
        largest = places[np.argsort(-flat[places], kind="stable")[:count]]
        assert sorted(np.flatnonzero(before != after)) == sorted(largest)
        assert set(after[largest]) <= {mask}
    assert without(encoded, values, 1e-9, mask) == encoded


def test_all_arms_read_texts_that_one_method_has_ordered(read: list[Any]) -> None:
    """As in the paper's figure: the same masked texts for the method and for plain fine-tuning."""
    tdt, plain = TinyModel(seed=3), TinyModel(seed=4)
    tdt.confidence = lambda embedding: embedding[..., 0].sigmoid()

    def run(trained: TinyModel, **options: Any) -> tuple[Any, list[Any]]:
        judged = finished(trained)
        read.clear()
        return evaluated("deletion", trained, judged, models={"tdt": tdt, "vanilla": plain}, **options), list(read)

    alone, of_tdt = run(tdt)
    result, same = run(plain, confidence_of="tdt")
    assert same == of_tdt
    assert result.remarks == ("tokens are ordered by the confidence that 'tdt' has learned",)
    assert alone.remarks == ("tokens are ordered by the confidence that the method has learned",)
    with pytest.raises(Unfit, match="no method here learns a confidence per token"):
        run(plain)
    with pytest.raises(Unfit, match="no method here learns a confidence per token"):
        run(tdt, confidence_of="vanilla")
    other: Any = TinyModel()
    other.confidence, other.encode = tdt.confidence, lambda given: tdt.encode(list(given)[::-1])
    with pytest.raises(Unfit, match="'tdt' reads other tokens than this run"):
        evaluated("deletion", plain, finished(plain), models={"tdt": other}, confidence_of="tdt")

"""Composition: what runs together, in which order, and what is refused with which words."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from regft_core.config.schema import DropoutConfig, TrainingOverrides
from regft_core.methods import compose
from regft_core.methods.registry import discover
from tests.methods.harness import TRAINING, Bench, entries, same

#: One representative of each regulariser that fine-tunes on a checkpoint with a masked-LM head.
ACTING: dict[str, dict[str, Any]] = {
    "hype": {"scale": 1e-3},
    "pats": {},
    "tdt": {},
    "mask_tuning": {},
    "weight_mixup": {"mode": "fixed"},
}
PAIRS = list(itertools.combinations(sorted(ACTING), 2))


def overrides(**values: Any) -> TrainingOverrides:
    return TrainingOverrides.model_validate(values)


@pytest.mark.parametrize("pair", PAIRS, ids=["+".join(pair) for pair in PAIRS])
def test_every_pair_trains_or_is_refused_with_both_names(pair: tuple[str, str]) -> None:
    listed = [(name, ACTING[name]) for name in pair]
    problems = compose.ownership_problems(entries(listed), search=False)
    owners = [name for name in pair if discover()[name].program(discover()[name].Config(), "finetune")]
    if len(owners) == 2:
        assert len(problems) == 1
        assert all(f"'{name}'" in problems[0] for name in pair)
        assert "no paper defines their union" in problems[0]
        return
    assert not problems
    both = Bench(listed, masked_lm=True)
    weights = both.train()
    assert all(torch.isfinite(value).all() for value in weights.values())
    for alone in listed:
        assert not same(weights, Bench([alone], masked_lm=True).train())
    # The order in the YAML does not matter for methods that act at different points.
    assert same(weights, Bench(list(reversed(listed)), masked_lm=True).train())


def test_noise_comes_after_the_views_that_tdt_builds() -> None:
    """HyPe's noise is added to all three views, so it must not enter the mean that TDT mixes in."""
    run = Bench([("hype", {"scale": 1e-3}), ("tdt", {})])
    assert [r.name for r in sorted(run.stack.regularisers, key=lambda r: r.forward_order)] == ["tdt", "hype"]


def test_noise_in_chosen_passes_only() -> None:
    """Named passes: HyPe in the distilled view leaves the other two as they were."""
    clean = Bench([("tdt", {}), ("hype", {"scale": 0.0})])
    noisy = Bench([("tdt", {}), ("hype", {"scale": 0.5, "passes": ["distilled"]})])
    logits = []
    for run in (clean, noisy):
        seen: list[torch.Tensor] = []
        step = run.step()
        original = step.forward

        def spy(*args: Any, original: Any = original, seen: list[torch.Tensor] = seen, **more: Any) -> Any:
            out = original(*args, **more)
            seen.append(out.detach())
            return out

        step.forward = spy  # type: ignore[method-assign]
        run.stack.backward(step)
        logits.append(seen[0].chunk(3))
    assert torch.equal(logits[0][0], logits[1][0])
    assert not torch.equal(logits[0][1], logits[1][1])
    assert torch.equal(logits[0][2], logits[1][2])


def test_one_optimiser_owner() -> None:
    stack = entries([("pats", {})])
    training, problems = compose.resolve_training(stack, TRAINING, overrides())
    assert training.optimizer == "adamax"
    assert not problems
    _, problems = compose.resolve_training(stack, TRAINING, overrides(optimizer="adamw"))
    assert "'pats' is defined on adamax but training.optimizer says adamw" in problems[0]


def test_two_search_phases_are_refused() -> None:
    listed = entries([("weight_mixup", {}), ("mask_tuning", {"language_model_head": "trained"})])
    problems = compose.ownership_problems(listed, search=True)
    assert any("search phase" in problem and "'mask_tuning'" in problem for problem in problems)


def test_tdt_leaves_the_search_of_weight_mixup_alone() -> None:
    """No paper defines TDT's losses inside a two-level search; they act in fine-tuning only."""
    from regft_core.methods.weight_mixup import WeightMixupSearchConfig

    def searched(*listed: tuple[str, dict[str, Any]]) -> dict[str, torch.Tensor]:
        run = Bench(listed, phase="search-0", search=WeightMixupSearchConfig(), validation=True)
        run.loop().train()
        assert run.stack.searcher is not None
        return run.stack.searcher.search_result(run.trainee)

    assert same(searched(("weight_mixup", {}), ("tdt", {})), searched(("weight_mixup", {})))


def test_a_regulariser_listed_twice_is_refused() -> None:
    problems = compose.ownership_problems(entries([("hype", {}), ("hype", {"scale": 1e-4})]), search=False)
    assert "listed twice" in problems[0]


def test_dropout_is_negotiated() -> None:
    stack = entries([("hype", {})])
    settled, problems = compose.negotiate_dropout(stack, DropoutConfig(hidden=0.1, attention=0.2), overrides())
    assert (settled.hidden, settled.attention) == (0.0, 0.2)
    assert not problems
    _, problems = compose.negotiate_dropout(stack, DropoutConfig(), overrides(dropout={"hidden": 0.1}))
    assert "'hype' needs 0.0 but training.dropout sets it to 0.1" in problems[0]
    kept, problems = compose.negotiate_dropout(
        entries([("hype", {"hidden_dropout": "keep"})]), DropoutConfig(), overrides(dropout={"hidden": 0.3})
    )
    assert (kept.hidden, problems) == (0.3, [])


def test_declared_cost_is_that_of_the_program() -> None:
    assert compose.declared_cost(entries([("hype", {}), ("tdt", {})])).ratio == 3.0
    assert compose.declared_cost(entries([("hype", {}), ("pats", {})])).ratio == 1.0


def test_variants_of_a_composition() -> None:
    assert compose.variants(entries([("hype", {})])) is None
    assert compose.variants(entries([("weight_mixup", {"variant": "released"})])) == "released"
    mixed = entries([("weight_mixup", {"variant": "released"}), ("tdt", {"variant": "paper"})])
    assert compose.variants(mixed) == "mixed"


def test_contradicting_options_name_the_way_out() -> None:
    from regft_core.methods.weight_mixup import WeightMixup, WeightMixupConfig, WeightMixupSearchConfig

    def problems(search: dict[str, Any] | None = None, **options: Any) -> list[str]:
        given = None if search is None else WeightMixupSearchConfig(**search)
        return WeightMixup.check_options(WeightMixupConfig(**options), given)

    assert not problems({})
    assert "repeats: 1 or rank: 1" in problems({"repeats": 3}, rank=2)[0]
    assert "use vanilla" in problems(attention="ones", mode="fixed")[0]
    assert "variant: paper" in problems({"inner_gradient": "reused"}, variant="released")[0]
    assert "implicit: one or none" in problems({"implicit": "learning_rate"}, variant="released")[0]
    assert "remove it" in problems(form="full_rank", rank=2)[0]

"""Methods are found by their files, and what each refuses."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from regft_core.catalogue import METHODS
from regft_core.errors import ConfigError, RegftError
from regft_core.hooks.registry import discover
from regft_core.schema.method import Cost
from regft_core.schema.methods import DataConfig, RepeatConfig
from tests.errors import raises_code
from tests.methods.cases import task
from tests.methods.chain import REPOSITORY, phase
from tests.methods.harness import TRAINING, Bench, same
from tests.small_project import also


def example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "own_method.md").read_text(), flags=re.DOTALL)
    return textwrap.dedent("   " + blocks[0].lstrip(" "))


def test_the_documented_example_is_found_in_another_folder_and_trains(tmp_path: Path) -> None:
    (tmp_path / "smooth_logits.py").write_text(example())
    with also(METHODS, tmp_path):
        registry = discover()
        cls = registry["smooth_logits"]
    assert set(registry) - set(discover()) == {"smooth_logits"}
    assert cls.declare(cls.Config(weight=0.5)).description.cost == Cost(2, 2)
    plain = Bench().train()
    assert not same(Bench([(cls, {"weight": 0.5})]).train(), plain)
    assert same(Bench([(cls, cls.off)]).train(), plain)


def test_a_file_defines_the_regulariser_of_its_name_and_no_two_have_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(example().replace('"smooth_logits"', '"hype"'))
    with also(METHODS, tmp_path), raises_code(ConfigError, "no-method-in-file", "mine.py", "'hype'"):
        discover()["mine"]
    (tmp_path / "hype.py").write_text(example())
    with also(METHODS, tmp_path), raises_code(ConfigError, "name-taken", "hype"):
        discover()


NONE: dict[str, Any] = {"epochs": 0}
SEARCH = {"name": "search", "data": DataConfig(split=0.8)}
#: (regulariser, options, changes of the protocol, of the phase)
OPTIONS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("child_tuning", {"mask": "measured", "reserve": 0.5}, {}, {}),
    ("contrastive", {}, {}, {"name": "finetune"}),
    ("contrastive", {}, {}, {"name": "pairs", "data": DataConfig(labels=False)}),
    ("distil", {"weight": 0.5}, {}, {"data": DataConfig(labels=False)}),
    ("distil", {"weight": 0.0, "hidden": 1.0}, {}, {"data": DataConfig(labels=False)}),
    ("cutoff", {}, {}, {"data": DataConfig(labels=False)}),
    ("r_drop", {}, {}, {"data": DataConfig(labels=False)}),
    ("fisher", {}, NONE, {"name": "measure", "data": DataConfig(labels=False)}),
    ("fisher", {}, {}, {"name": "finetune"}),
    ("fisher", {}, {}, {"name": "measure"}),
    ("fisher", {}, NONE, {"name": "measure", "repeat": RepeatConfig(times=2)}),
    ("hype", {"layers": ()}, {}, {}),
    ("hype", {"passes": ()}, {}, {}),
    ("l2_sp", {"form": "decoupled", "strength": 2000.0}, {}, {}),
    ("label_thresholds", {}, NONE, {"data": DataConfig(split=0.8)}),
    ("linear_head", {}, {}, {"data": DataConfig(labels=False)}),
    ("mask_tuning", {"alpha": 0.5, "mask_rate": 0.0}, {}, {}),
    ("mask_tuning", {"alpha": 0.5, "fill": "mask"}, {}, {}),
    ("mask_tuning", {"alpha": 0.0, "fill": "mask", "coupling": "separate"}, {}, {}),
    ("mask_tuning", {"alpha": 0.5, "filler": "before"}, {}, {}),
    ("mask_tuning", {"alpha": 0.0, "filler": "before", "head": "other"}, {}, {}),
    ("mask_tuning", {"alpha": 0.0, "filler": "before", "coupling": "separate"}, {}, {}),
    ("mask_tuning", {"alpha": 0.0, "fill": "mask", "head": "before"}, {}, {}),
    ("masked_lm", {}, {}, {}),
    ("manifold_mixup", {"layers": ()}, {}, {}),
    ("prefix_tuning", {}, {}, {"name": "first"}),
    ("rec_adam", {"strength": 5000.0}, {"learning_rate": 4e-4}, {}),
    ("rec_adam", {"annealing": "linear", "rate": 0.1}, {}, {}),
    ("rec_adam", {"annealing": "constant", "start": "random"}, {}, {}),
    ("sam", {"eta": 0.1}, {}, {}),
    ("stacking", {"members": ["words", "words"]}, NONE, {}),
    ("supervised_contrastive", {"weight": 1.0}, {}, {}),
    ("tdt", {"variant": "released", "gamma": 0.1}, {}, {}),
    ("tdt", {"variant": "released", "mode": "hard"}, {}, {}),
    ("tdt", {"variant": "released", "perturbation": "zero"}, {}, {}),
    ("tdt", {"variant": "released", "divergence": "printed"}, {}, {}),
    ("tdt", {"temperature": 2.0}, {}, {}),
    ("tdt", {"gaussian_std": 2.0}, {}, {}),
    ("tdt", {"mode": "hard", "perturbation": "zero"}, {}, {}),
    ("tdt", {"perturbation": "zero", "mu0_mask_padding": False}, {}, {}),
    ("tfidf_logistic", {"words": 0}, NONE, {}),
    ("verbaliser", {"demonstrations": "per_class"}, {"checkpoint": "best_on_split"}, {}),
    ("verbaliser", {"demonstrations": "per_class"}, {}, {"repeat": RepeatConfig(times=2, merge="greedy", vary=())}),
    ("weight_averaging", {"decay": 0.9}, {}, {}),
    ("weight_averaging", {"average": "exponential", "begin": 0.1}, {}, {}),
    ("weight_averaging", {}, NONE, {}),
    ("weight_mixup", {"rank": 2}, {}, {"name": "search", "repeat": RepeatConfig(times=3)}),
    ("weight_mixup", {}, {}, {}),
    ("weight_mixup", {"inner_gradient": "reused", "variant": "released"}, {}, SEARCH),
    ("weight_mixup", {"implicit": "learning_rate", "variant": "released"}, {}, SEARCH),
    ("weight_mixup", {"form": "full_rank", "rank": 2}, {}, SEARCH),
    ("weight_mixup", {"attention": "joint", "implicit": "one"}, {}, {}),
    ("weight_mixup", {"attention": "joint", "radius": 0.1}, {}, {}),
    ("weight_mixup", {"attention": "search", "initial_std": 0.1}, {}, {}),
    ("weight_mixup", {"attention": "joint", "interval": 2}, {}, {}),
    ("weight_mixup", {"attention": "random", "attention_learning_rate": 1e-3}, {}, {}),
    ("weight_mixup", {"implicit": "none", "inner_gradient": "reused"}, {}, SEARCH),
    ("wise_ft", {}, NONE, {}),
    ("wise_ft", {"start": "head"}, {}, {}),
    ("wise_ft", {"alpha": 0.0}, {}, {}),
]
ACCEPTED: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("contrastive", {}, {}, {"name": "pairs"}),
    ("distil", {"weight": 1.0}, {}, {"data": DataConfig(labels=False)}),
    ("distil", {"weight": 0.5}, {}, {}),
    ("cutoff", {"alpha": 0.0}, {}, {"data": DataConfig(labels=False)}),
    ("fisher", {}, NONE, {"name": "measure"}),
    ("l2_sp", {"form": "decoupled", "strength": 1999.0}, {"learning_rate": 1e-3, "warmup_ratio": 0.0}, {}),
    ("l2_sp", {"strength": 2000.0}, {}, {}),
    ("label_thresholds", {}, {}, {"data": DataConfig(split=0.8)}),
    ("stacking", {}, NONE, {}),
    ("tdt", {"mode": "hard", "temperature": 2.0}, {}, {}),
    ("tdt", {"perturbation": "gaussian", "gaussian_std": 2.0}, {}, {}),
    ("tfidf_logistic", {}, NONE, {}),
    ("verbaliser", {}, {"checkpoint": "best_on_split"}, {}),
    ("verbaliser", {"demonstrations": "per_class"}, {}, {"repeat": RepeatConfig(times=2)}),
    ("weight_mixup", {}, {}, SEARCH),
    ("weight_mixup", {"attention": "search"}, {}, {}),
    ("wise_ft", {"alpha": 0.0, "head": "trained"}, {}, {}),
    ("wise_ft", {"alpha": 0.0, "start": "head"}, NONE, {}),  # 0 is the start itself, which is an answer there
]
#: (regulariser, options, kind of task); the others take classes
TASKS: list[tuple[str, dict[str, Any], str]] = [
    ("label_thresholds", {}, "classification"),
    ("contrastive", {}, "regression"),
    ("label_smoothing", {}, "regression"),
    ("linear_head", {"head": "package"}, "regression"),
    ("r3f", {"variant": "released"}, "regression"),
    ("supervised_contrastive", {}, "regression"),
    ("tdt", {"variant": "released"}, "regression"),
    ("verbaliser", {}, "regression"),
]
#: (regulariser, control, options under which it would train with the bits of its arm)
WITHOUT_INGREDIENT: list[tuple[str, str, dict[str, Any]]] = [
    ("freelb", "random", {"steps": 1}),
    ("freelb", "random", {"ascent_size": 0.0}),
    ("smart", "random", {"weight": 0.0}),
    ("top_k_layers", "bottom", {"layers": 0}),
    ("top_k_layers", "bottom", {"layers": "all"}),
    ("uda", "unhidden", {"weight": 0.0}),
]
#: (regulariser, options, changes of the bench, code)
ENCODERS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("hype", {"layers": [7]}, {}, "layer-out-of-range"),
    ("lnsr", {"layer": 5}, {}, "layer-out-of-range"),
    ("manifold_mixup", {"layers": [5]}, {}, "layer-out-of-range"),
    ("mask_tuning", {}, {}, "masked-lm-head-missing"),
    ("mask_tuning", {"coupling": "separate"}, {}, "masked-lm-head-missing"),
    ("re_init", {"layers": 3}, {"architecture": "bart"}, "layer-out-of-range"),
    ("smart", {"variant": "released"}, {"architecture": "xlnet"}, "encoder-does-not-fit"),
    ("smart", {"variant": "released"}, {"architecture": "eurobert"}, "encoder-does-not-fit"),
    ("top_k_layers", {"layers": 3}, {}, "layer-out-of-range"),
    ("verbaliser", {}, {}, "masked-lm-head-missing"),
    ("verbaliser", {}, {"max_length": 5, "masked_lm": True}, "template-too-long"),
]


@pytest.mark.parametrize(
    ("name", "options", "training", "changes", "refused"),
    [*((*row, True) for row in OPTIONS), *((*row, False) for row in ACCEPTED)],
)
def test_options_and_phases(
    name: str, options: dict[str, Any], training: dict[str, Any], changes: dict[str, Any], refused: bool
) -> None:
    cls, protocol = discover()[name], TRAINING.model_copy(update=training)
    try:
        own = cls.Config.model_validate(options)
    except ValidationError:
        assert refused
        return
    given = replace(phase(), regularisers=((name, own),), training=protocol, explicit=training, **changes)
    problems = cls.check_options(own, given)
    assert bool(problems) == refused


@pytest.mark.parametrize(("name", "options", "kind"), TASKS)
def test_tasks(name: str, options: dict[str, Any], kind: str) -> None:
    cls = discover()[name]
    own = cls.Config.model_validate(options)
    assert cls.check_task(own, task(kind))
    assert not cls.check_task(own, task("multi_label" if kind == "classification" else "classification"))


@pytest.mark.parametrize(("name", "options", "bench", "code"), ENCODERS)
def test_encoders(name: str, options: dict[str, Any], bench: dict[str, Any], code: str) -> None:
    with pytest.raises(RegftError) as refused:
        Bench([(name, options)], **bench)
    assert refused.value.code == code


@pytest.mark.parametrize(("name", "control", "options"), WITHOUT_INGREDIENT)
def test_an_arm_without_the_ingredient_has_no_control_of_it(name: str, control: str, options: dict[str, Any]) -> None:
    cls, arm = discover()[name], Bench([(name, options)])
    flip = cls.controls[control]
    assert flip.when(cls.Config())
    assert not flip.when(cls.Config(**options))
    assert same(arm.train(), Bench([(name, {**options, **flip.options})]).train())

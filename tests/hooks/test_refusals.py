"""Refusals: faults of a class and its hooks, regularisers that exclude each other, phases that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.catalogue import METHODS
from regft_core.errors import ConfigError, Problem
from regft_core.hooks import compose, refusals
from regft_core.hooks.compose import in_the_way_of_export, learns
from regft_core.hooks.registry import discover
from regft_core.schema import DropoutConfig
from regft_core.schema.methods import RepeatConfig
from tests.methods.cases import task
from tests.methods.chain import method, phase
from tests.methods.harness import NO_STEPS, STILL, TRAINING, Listed, entries
from tests.small_project import also

DECLARED = "active=active, description=Description(smallest_effect=0.1)"
RIGHT = f"""from pydantic import Field

from regft_core.schema import StrictModel
from regft_core.hooks.base import Declares, Regulariser, Description


class Options(StrictModel):
    sigma: float = Field(0.01, ge=0)


class GradientNoise(Regulariser):
    name = "gradient_noise"
    Config = Options
    off = {{"sigma": 0.0}}

    @classmethod
    def declare(cls, options):
        active = options.sigma > 0
        return Declares({DECLARED})

    @staticmethod
    def _change_gradients(step):
        return step

    def change_gradients(self, step):
        self._change_gradients(step)
"""


def problems_of(folder: Path, text: str) -> list[Problem]:
    """Problems of a method's file."""
    (folder / "gradient_noise.py").write_text(text)
    try:
        with also(METHODS, folder):
            discover()["gradient_noise"]
    except ConfigError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "named"),
    [
        ("def change_grad", "def change_garad", "unknown-hook", 25, "did you mean 'change_grad"),
        ("change_gradients(self, step)", "change_gradients(self)", "hook-arguments", 25, "(self, step)"),
        ("    @classmethod\n", "", "hook-arguments", 16, "@classmethod"),
        (
            "    def change",
            "    @classmethod\n    def change",
            "hook-arguments",
            25,
            "def change_gradients(self, step)",
        ),
        ('{"sigma": 0.0}', '{"sgima": 0.0}', "invalid-value", 0, "sigma"),
        ("def declare(cls, options):", "def declare(cls, options)", "cannot-import", 17, "repair"),
        ("def declare", "def delcare", "unknown-hook", 16, "did you mean 'declare'?"),
        ("(active=active", "(actve=active", "bad-declaration", 19, "every field"),
        ("options.sigma > 0", "options.sigam > 0", "bad-declaration", 18, "field"),
        ("return Declares(", "Declares(", "bad-declaration", 16, "return Declares"),
        ("    def change", "    edit_order = 3\n\n    def change", "field-as-hook", 0, "(edit_order=...)"),
        ("def change_gradients", "def cost", "field-as-hook", 25, "Description(cost=...)"),
        ("hooks.base", "hooks.bas", "cannot-import", 4, "repair"),
        ('    name = "gradient_noise"\n', "", "no-method-in-file", 0, "name"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, old: str, new: str, code: str, line: int, named: str) -> None:
    """A decorated function begins at its decorator."""
    assert old in RIGHT
    (problem,) = problems_of(tmp_path, RIGHT.replace(old, new))
    assert (problem.file.endswith("gradient_noise.py"), problem.code, problem.line) == (True, code, line)
    assert named in problem.hint


ARGUMENTS = {"terms": "step, main", "predict": "trainee, kept, examples", "rebuild": "trainee, kept"}
ARGUMENTS |= {"prepare": "trainee, handed", "fit": "trainee, data", "build_optimizer": "groups, training"}
ARGUMENTS |= {"backward": "step", "keep": "trainee", "export": "trainee"}


@pytest.mark.parametrize(
    ("declared", "hooks", "refused"),
    [
        # What is declared must be implemented: it would end in training, or train as something else than it says.
        ('passes=("main",)', "", "hook-missing backward or terms"),
        ("needs_hidden=True", "", "hook-missing terms"),
        ("active=active", "rebuild", "hook-missing keep"),
        ('needs={"search": "state"}', "", "hook-missing prepare"),
        ("owns_weights=True", "prepare", "hook-missing export"),
        ("freezes_encoder=True", "fit", "hook-missing prepare"),
        ('edits=("structure",)', "", "hook-missing edit_weights or prepare"),
        # A hook that no options ask for: nothing would call it.
        ("active=active", "backward", "hook-undeclared passes"),
        ("active=active", "build_optimizer", "hook-undeclared optimizer"),
        ('passes=("main",)', "backward", ""),
        ('passes=("main",) if options.sigma == 0.5 else ()', "backward", ""),  # under options that are no defaults
        ("active=active", "terms predict", ""),
        ('edits=("weights",)', "fit", ""),
        ("active=active", "prepare keep export fit", ""),
    ],
)
def test_declarations_and_hooks_belong_together(tmp_path: Path, declared: str, hooks: str, refused: str) -> None:
    bodies = "".join(f"\n    def {hook}(self, {ARGUMENTS[hook]}):\n        return None\n" for hook in hooks.split())
    problems = problems_of(tmp_path, RIGHT.replace(DECLARED, declared) + bodies)
    assert bool(problems) == bool(refused)
    for problem in problems:
        code, _, named = refused.partition(" ")
        assert (problem.code, problem.line) == (code, 16 if code == "hook-missing" else 28)
        assert named in problem.hint


R_DROP: tuple[str, dict[str, Any]] = ("r_drop", {})
HYPE: tuple[str, dict[str, Any]] = ("hype", {"scale": 1e-3})
OFF = ("r_drop", {"alpha": 0.0, "cross_entropy": "first"})


@pytest.mark.parametrize(
    ("stack", "passes", "nearest"),
    [
        ([], ("main",), ""),
        ([R_DROP], ("main", "r_drop.second"), ""),
        ([("tdt", {})], ("clean", "distilled", "negative"), ""),
        ([R_DROP], ("r_drop.secnd",), "did you mean 'r_drop.second'?"),
        ([OFF], ("r_drop.second",), "allowed: main"),  # an inactive regulariser adds no pass
    ],
)
def test_a_regulariser_is_restricted_to_passes_of_its_phase(stack: list[Any], passes: Any, nearest: str) -> None:
    problems = refusals.pass_problems(entries([*stack, ("hype", {"scale": 1e-3, "passes": list(passes)})]))
    assert [nearest in problem for problem in problems] == ([True] if nearest else [])


@pytest.mark.parametrize(
    ("listed", "dropout", "refused", "marked"),
    [
        *(([R_DROP], dropout, 0, 0) for dropout in (DropoutConfig(), DropoutConfig(hidden=0.0))),
        ([R_DROP], DropoutConfig(attention=0.0), 0, 0),
        ([R_DROP], STILL, 1, 0),
        ([R_DROP, ("hype", {"scale": 0.0})], STILL, 1, 0),
        ([R_DROP, HYPE], STILL, 0, 1),  # its passes differ by that noise only
        ([HYPE], STILL, 0, 0),
    ],
)
def test_two_passes_must_differ_by_something(listed: Any, dropout: DropoutConfig, refused: int, marked: int) -> None:
    problems, marks = compose.randomness_problems(entries(listed), dropout)
    assert (len(problems), len(marks)) == (refused, marked)
    assert all("'r_drop'" in said for said in (*problems, *marks))


@pytest.mark.parametrize("name", ["prefix_tuning", "prompt_tuning"])
def test_what_plain_weights_and_kept_tensors_cannot_hold(name: str) -> None:
    registry = discover()
    for can in ("hype", "lora", "tfidf_logistic", "constant_answer", "stacking", "zero_shot_similarity"):
        assert in_the_way_of_export(registry, [(can, registry[can].Config())]) is None
    assert in_the_way_of_export(registry, [(name, registry[name].Config())]) == name


@pytest.mark.parametrize(
    ("name", "epochs", "learning"),
    [("zero_shot_similarity", 0, False), ("linear_head", 0, True), ("hype", 0, False), ("hype", 3, True)],
)
def test_more_rows_change_only_what_learns(name: str, epochs: int, learning: bool) -> None:
    cls = discover()[name]
    phase: Any = SimpleNamespace(
        training=SimpleNamespace(epochs=epochs), data=SimpleNamespace(labels=True), regularisers=[(name, cls.Config())]
    )
    method: Any = SimpleNamespace(phases=[phase])
    assert learns(discover(), method) is learning


FISHER = "first: {training: {epochs: 0}, regularisers: {fisher: {share: 0.3}}}"
SMOOTHED = "first: {regularisers: {label_smoothing: {smoothing: 0.1}}}"
DRAWN = "first: {regularisers: {re_init: {layers: 1}}}, second: {}"
TAKES = "regularisers: {child_tuning: {mask: first}}"
MIXED = "first: {regularisers: {weight_mixup: {attention: random}}}"
BESIDE = "start: checkpoint, training: {epochs: 0}, regularisers: {stacking: {members: [words], beside: first}}"


@pytest.mark.parametrize(
    ("earlier", "last", "problem"),
    [
        (FISHER, TAKES, ""),
        (SMOOTHED, TAKES, "'child_tuning' takes what the phase 'first' has learned, and no regulariser there hands"),
        (SMOOTHED.replace("{r", "{training: {epochs: 0}, r"), "start: previous", "'label_smoothing' acts in steps"),
        (FISHER.replace("{fisher", "{label_smoothing: {smoothing: 0.1}, fisher"), TAKES, ""),  # it measures that loss
        # The phase answers by its mix, which its weights are not.
        (MIXED, "start: previous", "it takes the weights of the phase 'first', whose answers are those of the mix"),
        (MIXED, BESIDE, "it takes the weights of the phase 'first', whose answers are those of the mix"),
        (MIXED, "start: previous, regularisers: {weight_mixup: {attention: random}}", ""),
        (SMOOTHED, BESIDE, ""),
        # Nothing pulls drawn layers back to the checkpoint.
        (DRAWN, "start: previous, regularisers: {l2_sp: {toward: checkpoint}}", "'re_init' in the phase 'first' drew"),
        (DRAWN, "start: previous, regularisers: {l2_sp: {toward: start}}", ""),
        (DRAWN, "start: checkpoint, regularisers: {l2_sp: {toward: checkpoint}}", ""),
        # Labels that are hidden are all 0.
        (
            "first: {data: {labels: false}}",
            "start: previous",
            "'first': data.labels: false hides the labels it trains on",
        ),
        ("first: {data: {labels: false}, regularisers: {masked_lm: {}}}", "start: previous", ""),
        ("first: {data: {labels: false}, training: {epochs: 0}}", "start: previous", ""),
    ],
)
def test_a_phase_fits_those_before_it(earlier: str, last: str, problem: str) -> None:
    given = method(earlier + last, f"phases: {{{earlier}, finetune: {{{last}}}}}")
    problems = compose.check_method(discover(), given, task("classification"))
    assert [problem in said for said in problems] == ([True] if problem else [])


@pytest.mark.parametrize(("mode", "refused"), [("hard", True), ("soft", False)])
def test_masks_in_place_of_words_hide_the_mask_that_is_answered_at(mode: str, refused: bool) -> None:
    problems = refusals.ownership_problems(entries([("verbaliser", {}), ("tdt", {"mode": mode})]))
    assert any("'tdt' does not run beside 'verbaliser'" in problem for problem in problems) is refused


NOISE: Listed = ("hype", {})
BAG: Listed = ("tfidf_logistic", {})


@pytest.mark.parametrize(
    ("listed", "changes", "problem"),
    [
        ([BAG], {}, ""),
        ([NOISE], {}, ""),
        ([BAG, ("hype", {"scale": 0.0, "hidden_dropout": "keep"})], {}, ""),
        ([BAG, NOISE], {}, "'hype'"),
        ([BAG, ("zero_shot_similarity", {})], {}, "both own the prediction"),
        ([BAG], {"repeat": RepeatConfig(times=2)}, "'repeat'"),
        ([BAG], {"training": TRAINING}, "epochs: 0"),
        ([BAG], {"name": "first"}, "'finetune'"),
    ],
)
def test_what_answers_in_place_of_the_model_stands_alone(listed: Any, changes: dict[str, Any], problem: str) -> None:
    answering = replace(phase(), **{"training": NO_STEPS, **changes})
    problems = refusals.prediction_problems(entries(listed), answering)
    assert [problem in said for said in problems] == [True] if problem else problems == []

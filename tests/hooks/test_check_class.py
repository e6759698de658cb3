"""A method's file that cannot work is refused with its line before anything trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.catalogue import METHODS
from regft_core.errors import ConfigError, Problem
from regft_core.hooks.registry import discover
from tests.errors import raises_code

RIGHT = """from pydantic import Field

from regft_core.schema import StrictModel
from regft_core.hooks.base import Declares, Regulariser, Description


class Options(StrictModel):
    sigma: float = Field(0.01, ge=0)


class GradientNoise(Regulariser):
    name = "gradient_noise"
    Config = Options
    off = {"sigma": 0.0}

    @classmethod
    def declare(cls, options):
        active = options.sigma > 0
        return Declares(active=active, description=Description(smallest_effect=0.1))

    @staticmethod
    def _change_gradients(step):
        return step

    def change_gradients(self, step):
        self._change_gradients(step)
"""


def refused(folder: Path, old: str, new: str) -> Problem:
    assert old in RIGHT
    (folder / "gradient_noise.py").write_text(RIGHT.replace(old, new))
    with METHODS.also(folder), pytest.raises(ConfigError) as caught:
        discover()["gradient_noise"]
    (problem,) = caught.value.problems
    assert problem.file.endswith("gradient_noise.py")
    return problem


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ("def change_grad", "def change_garad", 25, "change_garadients: is no hook", "did you mean 'change_grad"),
        ("change_gradients(self, step)", "change_gradients(self)", 25, "takes (self)", "(self, step)"),
        ("    @classmethod\n", "", 16, "declare: is asked before any model", "@classmethod"),
        ("    def change", "    @classmethod\n    def change", 25, "called on an instance", "remove @classmethod"),
        ('{"sigma": 0.0}', '{"sgima": 0.0}', 0, "off: sgima", "sigma"),
        ("def declare(cls, options):", "def declare(cls, options)", 17, "SyntaxError: expected ':'", "repair"),
        ("def declare", "def delcare", 16, "delcare: is no hook", "did you mean 'declare'?"),
        ("(active=active", "(actve=active", 19, "TypeError: Declares.__init__() got an unexpected", "every field"),
        (
            "description=Description(small",
            "description=Description(smal",
            19,
            "TypeError: Description.__init__() got an unexpected",
            "every field",
        ),
        ("options.sigma > 0", "options.sigam > 0", 18, "AttributeError: 'Options' object has no attribute", "field"),
        ("return Declares(", "Declares(", 16, "returns None instead of a Declares", "return Declares"),
        (
            "    def change",
            "    edit_order = 3\n\n    def change",
            0,
            "a field of Declares and no hook",
            "(edit_order=...)",
        ),
        ("def change_gradients", "def cost", 25, "a field of Description and no hook", "Description(cost=...)"),
        ("StrictModel)", "BaseModel)", 7, "NameError: name 'BaseModel'", "repair"),
        ('{"sigma": 0.0}', '{"sigma": 0.0}\n    sources = {"sgima": "ours: x"}', 0, "'sgima' is no option", "'sigma'"),
        ('{"sigma": 0.0}', '{"sigma": 0.0}\n    sources = {"sigma": "code: a.py"}', 0, "owner/repository", "ours: the"),
        ("hooks.base", "hooks.bas", 4, "No module named 'regft_core.hooks.bas'", "repair"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, old: str, new: str, line: int, message: str, hint: str) -> None:
    problem = refused(tmp_path, old, new)
    assert message in str(problem)
    assert hint in problem.hint
    # A decorated function begins at its decorator.
    assert problem.line == line


def test_a_file_without_a_method_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nameless.py").write_text(RIGHT.replace('    name = "gradient_noise"\n', ""))
    with METHODS.also(tmp_path), raises_code(ConfigError, "no-method-in-file", "nameless.py"):
        discover()["nameless"]


ADDS = "        return Declares(active=active, description=Description(smallest_effect=0.1))"
HOOKS = {
    "backward": "def backward(self, step):",
    "terms": "def terms(self, step, main):",
    "predict": "def predict(self, trainee, kept, examples):",
    "rebuild": "def rebuild(self, trainee, kept):",
    "keep": "def keep(self, trainee):",
    "prepare": "def prepare(self, trainee, handed):",
    "export": "def export(self, trainee):",
    "fit": "def fit(self, trainee, data):",
    "build_optimizer": "def build_optimizer(self, groups, training):",
}


def written(folder: Path, declared: str, hooks: str) -> list[Problem]:
    """What is refused of a method that declares ``declared`` and has ``hooks``, which do nothing."""
    bodies = "".join(f"\n    {HOOKS[hook]}\n        return None\n" for hook in hooks.split())
    assert ADDS in RIGHT
    text = RIGHT.replace(ADDS, f"        return Declares({declared})") + bodies
    (folder / "gradient_noise.py").write_text(text)
    try:
        with METHODS.also(folder):
            discover()["gradient_noise"]
    except ConfigError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    ("declared", "missing", "others"),
    [
        ('program=("main",)', "backward", ""),
        ("adds_terms=True", "terms", ""),
        ('adds_terms=True, added_passes=("other",)', "terms", ""),
        ("adds_terms=True, needs_hidden=True", "terms", ""),
        ("owns_prediction=True", "predict", ""),
        ("keeps_for_inference=True", "rebuild", "keep"),
        ("keeps_for_inference=True", "keep", "rebuild"),
        ('needs={"search": "state"}', "prepare", ""),
        ("owns_weights=True", "prepare", "export"),
        ("owns_weights=True", "export", "prepare"),
        ("freezes_encoder=True", "prepare", "fit"),
        ('edits=("structure",)', "prepare", ""),
        # Only under options that are not the defaults.
    ],
)
def test_what_is_declared_must_be_implemented(tmp_path: Path, declared: str, missing: str, others: str) -> None:
    """It would end in training, or train as something else than it says."""
    problems = written(tmp_path, declared, others)
    assert problems
    for problem in problems:
        assert (problem.code, problem.line) == ("hook-missing", 16)
        assert "declares" in problem.message
        assert problem.hint.startswith(f"write {'edit_weights or ' if 'edits' in declared else ''}{missing}")


@pytest.mark.parametrize(
    ("hook", "field"),
    [
        ("backward", "program"),
        ("terms", "adds_terms"),
        ("predict", "owns_prediction"),
        ("rebuild", "keeps_for_inference"),
        ("build_optimizer", "optimizer"),
    ],
)
def test_a_hook_that_no_options_ask_for_is_refused(tmp_path: Path, hook: str, field: str) -> None:
    """Nothing would call it, and the method would train as plain fine-tuning."""
    (problem,) = written(tmp_path, "active=active", hook)
    assert problem.code == "hook-undeclared"
    assert problem.key == f"GradientNoise.{hook}"
    assert problem.line == 28
    assert f"Declares({field}=...)" in problem.hint


@pytest.mark.parametrize(
    ("declared", "hooks"),
    [
        ("active=active", ""),
        ('program=("main",)', "backward"),
        ('program=("main",) if active else ()', "backward"),
        ('program=("main",) if options.sigma == 0.5 else ()', "backward"),
        ("adds_terms=active", "terms"),
        ('edits=("weights",)', "fit"),
        ('optimizer="adamw"', ""),
        ("active=active", "prepare keep export fit"),
    ],
)
def test_what_is_declared_and_implemented_is_accepted(tmp_path: Path, declared: str, hooks: str) -> None:
    assert written(tmp_path, declared, hooks) == []

"""27: ``regft test-method`` names the fault of a method that breaks the contract, and passes one that keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from regft_core.catalogue import OWN
from regft_core.contract import check_method
from tests.promises.kit import regft
from tests.small_project import build

RIGHT = """
import torch
from pydantic import Field

from regft_core.hooks.base import Declares, Flip, Regulariser, Description
from regft_core.schema import StrictModel
from regft_core.schema.method import Cost


class Options(StrictModel):
    weight: float = Field(0.5, ge=0)
    unused: bool = True


class Pulled(Regulariser):
    name = "pulled"
    Config = Options
    off = {"weight": 0.0}
    controls = {"double": Flip({"weight": 1.0}, "twice as much")}

    @classmethod
    def declare(cls, options):
        about = Description(cost=Cost(1, 1))
        return Declares(active=options.weight > 0, adds_terms=True, needs_hidden=True, description=about)

    def __init__(self, options, setting):
        super().__init__(options, setting)
        self.mean = torch.zeros(())

    def terms(self, step, main):
        mask = step.batch.attention_mask[:, :, None]
        term = (main.hidden.float() * mask).sum() / mask.sum()
        self.mean = 0.5 * self.mean + 0.5 * term.detach()
        noise = torch.randn((), generator=step.generator("pulled.noise"))
        return self.options.weight * (term - self.mean).square() * noise.abs()

"""
STATE = """
    def state(self):
        return {"mean": self.mean}

    def load_state(self, state):
        self.mean = state["mean"]
"""
RIGHT += STATE
#: Fault -> text, replacement, the promises that it breaks.
FAULTS: dict[str, tuple[str, str, set[str]]] = {
    "draws from the global generator": (
        'torch.randn((), generator=step.generator("pulled.noise"))',
        "torch.randn(())",
        {"it draws from generators of its own"},
    ),
    "depends on padding": (
        "(main.hidden.float() * mask).sum() / mask.sum()",
        "10 * main.hidden.float().square().mean()",
        {"padding does not change its loss"},
    ),
    "keeps state without state()": (
        STATE,
        "",
        {"killed and resumed it ends alike"},
    ),
    "declares a third of its passes": (
        "noise = torch",
        'step.forward("pulled.a"); step.forward("pulled.b"); noise = torch',
        {"it runs the passes that it declares"},
    ),
    "leaves the weights moved": (
        "noise = torch",
        "step.trainee.parameter(next(iter(step.trainee.names()))).data.add_(1e-6); noise = torch",
        {"its passes leave the weights as they were"},
    ),
    "a control that changes nothing": (
        '{"weight": 1.0}',
        '{"unused": False}',
        {"its control pulled_double trains, and is another run"},
    ),
    "no effect": (
        "return self.options.weight *",
        "return 0.0 *",
        {"it changes the weights", "its control pulled_double trains, and is another run"},
    ),
    "raises": (
        'return {"mean": self.mean}',
        'return {"mean": self.meen}',
        {"killed and resumed it ends alike", "what it hands on and keeps can be stored"},
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = build(tmp_path_factory.mktemp("contract") / "project")
    (root / "methods").mkdir()
    yield root
    for catalogue in OWN.values():
        catalogue.own = None


def broken(root: Path, code: str) -> set[str]:
    """The promises that a method breaks."""
    (root / "methods" / "pulled.py").write_text(code)
    return {promise.says for promise in check_method(root, "pulled") if promise.kept is False}


def test_a_method_that_keeps_the_contract_passes(project: Path) -> None:
    (project / "methods" / "pulled.py").write_text(RIGHT)
    process = regft(project, "test-method", "pulled")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "BROKEN" not in process.stdout
    assert process.stdout.count("kept") >= 11


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(project: Path, fault: str) -> None:
    old, new, promises = FAULTS[fault]
    assert old in RIGHT
    assert broken(project, RIGHT.replace(old, new)) == promises


def test_a_method_file_that_leaves_its_regulariser_out_is_named(project: Path) -> None:
    controls = """    controls = {"double": Flip({"weight": 1.0}, "twice as much")}\n"""
    assert controls in RIGHT
    (project / "methods" / "pulled.py").write_text(RIGHT.replace(controls, ""))
    file = project / "pipelines/methods/pulled.yaml"
    file.write_text("description: another\nregularisers: {}\n")
    try:
        assert [promise.says for promise in check_method(project, "pulled") if promise.kept is False] == [
            "its method uses it"
        ]
    finally:
        file.unlink()


def test_a_draw_is_named_with_its_line_and_the_command_ends_with_1(project: Path) -> None:
    old, new, _ = FAULTS["draws from the global generator"]
    code = RIGHT.replace(old, new)
    line = next(number for number, text in enumerate(code.splitlines(), 1) if new in text)
    (project / "methods" / "pulled.py").write_text(code)
    process = regft(project, "test-method", "pulled")
    assert process.returncode == 1
    assert f"pulled.py:{line} (randn)" in process.stdout

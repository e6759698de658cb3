"""27: ``regft test-method`` names the faults of a method that breaks the contract; so for metrics and evaluations."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from regft_core.catalogue import EVALUATIONS, METRICS, OWN, import_file
from regft_core.contract import tried
from regft_core.contract.check_method import check_method
from regft_core.contract.plug_ins import check_evaluation, check_metric
from regft_core.hooks.registry import discover
from tests.errors import problems_of
from tests.small_project import stage

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
        return Declares(active=options.weight > 0, needs_hidden=True, description=about)

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
#: The promise that a fault breaks -> text, replacement.
SIX: dict[str, tuple[str, str]] = {
    "it draws from generators of its own": (
        'torch.randn((), generator=step.generator("pulled.noise"))',
        "torch.randn(())",
    ),
    "padding does not change its loss": (
        "(main.hidden.float() * mask).sum() / mask.sum()",
        "10 * main.hidden.float().square().mean()",
    ),
    "killed and resumed it ends alike": (STATE, ""),
    "it runs the passes that it declares": (
        "noise = torch",
        'step.forward("pulled.a"); step.forward("pulled.b"); noise = torch',
    ),
    "with hardly any strength it is hardly another than plain fine-tuning": ("return self", "return main.loss + self"),
    "its control pulled_double trains, and is another run": ('{"weight": 1.0}', '{"unused": False}'),
}
OTHERS: dict[str, tuple[str, str, set[str]]] = {
    "leaves the weights moved": (
        "noise = torch",
        "step.trainee.parameter(next(iter(step.trainee.names()))).data.add_(1e-6); noise = torch",
        {"its passes leave the weights as they were"},
    ),
    "no effect": (
        "return self.options.weight *",
        "return 0.0 *",
        {"it changes what a phase leaves", "its control pulled_double trains, and is another run"},
    ),
    "raises": (
        'return {"mean": self.mean}',
        'return {"mean": self.meen}',
        {"killed and resumed it ends alike", "what it hands on and keeps can be stored"},
    ),
    "trains in fp32 alone": (
        "noise = torch",
        'assert self.setting.training.precision == "fp32"; noise = torch',
        {"it trains in bf16", "it trains in fp16"},
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder: the encoder and the rows are made on the spot."""
    root = tmp_path_factory.mktemp("contract")
    (root / "methods").mkdir()
    (root / "pipelines/methods").mkdir(parents=True)
    yield root
    for catalogue in OWN.values():
        catalogue.own = None


@pytest.mark.parametrize(
    "name", [name if name == "fisher" else pytest.param(name, marks=pytest.mark.slow) for name in discover()]
)
def test_shipped_methods_keep_the_contract(project: Path, name: str) -> None:
    assert [promise for promise in check_method(project, name) if promise.kept is False] == []


def lines(output: str, mark: str) -> list[str]:
    """The lines of one mark."""
    return [line for line in output.splitlines() if line.startswith(mark)]


def broken(root: Path, code: str) -> set[str]:
    """The promises that a method breaks."""
    (root / "methods" / "pulled.py").write_text(code)
    return {promise.says for promise in check_method(root, "pulled") if promise.kept is False}


@pytest.mark.slow
def test_a_method_that_keeps_the_contract_passes(project: Path) -> None:
    (project / "methods" / "pulled.py").write_text(RIGHT)
    process = stage(project, "test-method", "pulled")
    assert process.returncode == 0, process.stdout + process.stderr
    assert not lines(process.stdout, "BROKEN")
    assert not lines(process.stdout, "not said")
    assert len(lines(process.stdout, "kept")) == 19


def test_six_faults_in_one_file_are_six_findings(project: Path) -> None:
    code = RIGHT
    for old, new in SIX.values():
        assert old in code
        code = code.replace(old, new)
    (project / "methods" / "pulled.py").write_text(code)
    process = stage(project, "test-method", "pulled")
    assert process.returncode == 1, process.stderr
    findings = dict(line.removeprefix("BROKEN").strip().split(": ", 1) for line in lines(process.stdout, "BROKEN"))
    assert findings.keys() == SIX.keys()
    line = next(number for number, text in enumerate(code.splitlines(), 1) if "torch.randn(())" in text)
    assert f"pulled.py:{line} (randn)" in findings["it draws from generators of its own"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", OTHERS)
def test_another_fault_is_named(project: Path, fault: str) -> None:
    old, new, promises = OTHERS[fault]
    assert old in RIGHT
    assert broken(project, RIGHT.replace(old, new)) == promises


def test_a_method_file_that_leaves_its_regulariser_out_is_named(project: Path) -> None:
    controls = """    controls = {"double": Flip({"weight": 1.0}, "twice as much")}\n"""
    assert controls in RIGHT
    (project / "methods" / "pulled.py").write_text(RIGHT.replace(controls, ""))
    file = project / "pipelines/methods/pulled.yaml"
    file.write_text("description: another\nregularisers: {}\n")
    try:
        (broken,) = [promise for promise in check_method(project, "pulled") if promise.kept is False]
        assert "pipelines/methods/pulled.yaml" in broken.found
    finally:
        file.unlink()


def test_a_new_method_keeps_the_contract_as_it_is_written(project: Path) -> None:
    assert stage(project, "new", "method", "made_new").returncode == 0
    file = project / "tests/test_made_new.py"
    nodes = list(ast.walk(ast.parse(file.read_text())))
    imported = {name.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names}
    assert imported <= {node.id for node in nodes if isinstance(node, ast.Name)}
    import_file(file, "test_made_new").test_it_keeps_the_contract()
    again = stage(project, "new", "method", "made_new")
    assert again.returncode == 2
    assert "[name-taken]" in again.stderr
    for word in ("null", "true", "class"):  # of YAML, of Python
        assert "[name-not-possible]" in stage(project, "new", "method", word).stderr


# ------------------------------------------------------------------------------ metrics and evaluations

METRIC = """
from regft_core.lazy import np

KINDS = ("classification", "ordinal")
RANGE = (0.0, 1.0)


def weighted(gold, predicted, weights, positive):
    return weights @ (predicted == gold).T.astype(np.float64) / len(gold)
"""
RIGHT_METRIC = "its values are numbers within RANGE"
METRIC_FAULTS: dict[str, tuple[str, str, set[str]]] = {
    "right": ("", "", set()),
    "nan of one row": ("/ len(gold)", "/ (len(gold) - 1)", {RIGHT_METRIC, "right predictions are the best"}),
    "an error called a score": ("predicted == gold", "predicted != gold", {"right predictions are the best"}),
    "weights are not read": (
        "weights @",
        "np.ones_like(weights) @",
        {"weighted() counts a row as often as its weight says"},
    ),
    "later rows count more": (
        "(predicted == gold)",
        "((predicted == gold) * np.linspace(0, 2, len(gold)))",
        {"the order of the rows does not matter"},
    ),
}


@pytest.mark.parametrize("fault", METRIC_FAULTS)
def test_faults_of_a_metric_are_named(project: Path, fault: str) -> None:
    old, new, promises = METRIC_FAULTS[fault]
    (project / "metrics").mkdir(exist_ok=True)
    (project / "metrics/hits.py").write_text(METRIC.replace(old, new) if old else METRIC)
    found = {promise.says for promise in check_metric(project, "hits") if promise.kept is False}
    assert found >= promises
    assert bool(found) == (fault != "right")


@pytest.mark.parametrize("name", METRICS.names())
def test_shipped_metrics_keep_their_contract(project: Path, name: str) -> None:
    assert [promise for promise in check_metric(project, name) if promise.kept is False] == []


EVALUATION = """
import numpy as np

from regft_core.evaluate.analysis_result import Findings
from regft_core.rng import derive
from regft_core.schema import StrictModel

DESCRIPTION = "how sure the run is"
KINDS = ("classification",)
NEEDS_MODEL = False


class Config(StrictModel):
    low: float


def run(run):
    drawn = np.random.default_rng(derive(run.seed, "sure.draw")).uniform()
    sure = {name: float(judged.confidences().mean()) for name, judged in run.sets.items()}
    scalars = {name: {"sure": value, "draw": drawn} for name, value in sure.items()}
    return Findings(scalars, ranges={"sure": (run.options.low, 1)})
"""
EVALUATION_FAULTS: dict[str, tuple[str, str]] = {
    'np.random.default_rng(derive(run.seed, "sure.draw")).uniform()': (
        "np.random.uniform()",
        "it draws from generators of its own",
    ),
    "judged.confidences().mean()": ("judged.confidences()[1]", "it answers on a set of one row"),
    "options.low, 1)": ("options.low, 0.1)", "its numbers are within its ranges"),
    "    sure =": (
        "    for judged in run.sets.values(): judged.logits[:] = judged.logits * 0.99\n    sure =",
        "it leaves logits and labels as they are",
    ),
}


def test_faults_of_an_evaluation_are_named(project: Path) -> None:
    (project / "evaluations").mkdir()
    file, faulty = project / "evaluations/sure.py", EVALUATION
    file.write_text(EVALUATION)
    problems = problems_of(lambda: list(check_evaluation(project, "sure")))
    assert {problem.code for problem in problems} == {"option-missing"}
    (project / "params.yaml").write_text("evaluations: {sure: {low: 0.0}}\n")
    assert [promise for promise in check_evaluation(project, "sure") if promise.kept is not True] == []
    for old, (new, _) in EVALUATION_FAULTS.items():
        assert old in faulty
        faulty = faulty.replace(old, new)
    file.write_text(faulty)
    found = {promise.says for promise in check_evaluation(project, "sure") if promise.kept is False}
    assert found == {"it finds the same twice", *(promise for _, promise in EVALUATION_FAULTS.values())}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVALUATIONS.names())
def test_shipped_evaluations_keep_their_contract(project: Path, name: str) -> None:
    assert [promise for promise in check_evaluation(project, name) if promise.kept is False] == []


def test_an_exception_is_told_with_its_place_in_the_own_file(tmp_path: Path) -> None:
    file = tmp_path / "methods" / "halting.py"
    file.parent.mkdir()
    file.write_text("import json\n\ndef terms():\n    return json.loads('{')\n")
    module = runpy.run_path(str(file))
    promise = tried("it trains", module["terms"])
    assert promise.kept is False
    assert promise.found.endswith("(halting.py:4)")

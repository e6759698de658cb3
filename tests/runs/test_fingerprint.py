from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.errors import ConfigError
from regft_core.runs import code_graph, distributions, files
from regft_core.runs.code_graph import prefixes
from regft_core.runs.distributions import providers, versions
from regft_core.runs.fingerprint import (
    EXEMPT,
    LOOKUPS,
    STAGES,
    TRAINING,
    CodeGraph,
    code_of,
    graph_of,
    package_root,
    stage_code,
    training_scope,
)
from tests.errors import raises_code

HYPE = "regft_core.methods.hype"
PATS = "regft_core.methods.pats"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own code, at a place where tests may edit it."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(package_root() / "regft_core", root / "regft_core", ignore=shutil.ignore_patterns("__pycache__"))
    return root


@contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    """Replace the first ``old`` in a file; an empty one appends to it, or makes it."""
    before = path.read_text() if path.exists() else None
    assert old in (before or ""), old
    path.parent.mkdir(exist_ok=True)
    path.write_text((before or "").replace(old, new, 1) if old else f"{before or ''}\n{new}\n")
    yield
    path.unlink() if before is None else path.write_text(before)


def training_code(own: Sequence[str], root: Path | None = None) -> dict[str, Any]:
    """The fingerprint of a training run with the modules ``own``."""
    scope = training_scope(own)
    return code_of(scope.entries, root, scope.exempt)


def keys(root: Path) -> dict[str, str]:
    """The fingerprints of two methods and of every stage."""
    found = {"hype": training_code([HYPE], root)["sha256"], "pats": training_code([PATS], root)["sha256"]}
    return found | {name: stage_code(name, root=root)["sha256"] for name in STAGES}


RUNS = {"hype", "pats"}


@pytest.mark.parametrize(
    ("name", "old", "new", "stale"),
    [
        # A word in a message, a log line, a docstring, an annotation, a description, a declaration: nobody.
        ("training/loop.py", "lower training.learning_rate", "try a lower training.learning_rate", set()),
        ("training/loop.py", '"""The only training loop.', '"""The loop.', set()),
        ("training/loop.py", "def _flush(self) -> None:", "def _flush(self):", set()),
        ("methods/pats.py", "scale of the noise variance (lambda)", "factor of the variance", set()),
        ("methods/hype.py", "smallest_effect=options.scale or None", "smallest_effect=options.scale", set()),
        ("hooks/says.py", "default=Cost()", "default=Cost(2.0, 2.0)", {"report"}),  # says which arms have an export
        ("data/encode.py", "is damaged", "is broken", set()),
        ("models/architectures.py", "is not supported", "is unknown", set()),
        ("errors.py", "configuration: {count}", "invalid configuration: {count}", set()),
        # What keeps, schedules, checks or identifies runs: nobody.
        ("runs/locks.py", '"host"', '"machine"', set()),
        ("runs/executors/__init__.py", "R = TypeVar", "UNUSED = 1\nR = TypeVar", set()),
        ("config/schema/report.py", "0.95, gt=0.5", "0.9, gt=0.5", {"report"}),  # the report's own default
        ("config/check_tasks.py", "", "UNUSED = 1", set()),
        ("phases/context.py", "RUN_FORMAT = 2", "RUN_FORMAT = 3", set()),
        ("hooks/compose.py", "2.0**-24", "2.0**-23", {"report"}),
        ("progress.py", "", "UNUSED = 1", set()),
        # An entry that is not used, or a new one: nobody else.
        ("methods/pats.py", "LOG_EVERY = 10", "LOG_EVERY = 20", {"pats"}),
        ("methods/hype.py", "draw * 2 - 1", "draw * 2 - 2", {"hype"}),
        ("methods/tdt.py", "", "UNUSED = 1", set()),
        ("methods/new.py", "", "UNUSED = 1", set()),
        ("models/families/new.py", "", "UNUSED = 1", set()),
        # What computes: everybody who uses it.
        ("training/loop.py", "math.inf\n", "1.0\n", RUNS),
        ("training/schedule.py", "total", "whole", RUNS),
        ("training/optim.py", "training.weight_decay", "2 * training.weight_decay", RUNS),
        ("training/stack.py", "reversed(self.in_edit_order)", "list(self.in_edit_order)", RUNS),
        ("rng.py", "sha256", "sha512", RUNS | {"dataset", "subsample", "evaluate", "evaluation", "merge", "report"}),
        ("training/new.py", "", "UNUSED = 1", set()),
        ("phases/training_run.py", "import torch\n", "import torch\nimport scipy\nscipy.x()\n", RUNS),
        ("models/load.py", "or 0.02", "or 0.03", {"hype", "pats", "evaluate", "merge"}),
        ("evaluation/ood.py", "own_labels[-1]", "own_labels[0]", {"evaluate", "evaluation", "merge", "report"}),
        ("kinds/_judging.py", "-3.09", "-3.08", {"evaluate", "evaluation", "merge"}),
        ("kinds/new.py", "", "UNUSED = 1", set()),
        ("evaluation/predict.py", "EVALUATION_BATCH = 64", "EVALUATION_BATCH = 32", {"evaluate", "merge"}),
        ("statistics/bootstrap.py", "", "USED = 1", {"report"}),
        ("reporting/report.html.j2", "<", "< ", {"report"}),
        ("reporting/svg.py", "", "USED = 1", {"report"}),
        ("data/prepare.py", "unicodedata.normalize", "unicodedata.normalise", {"dataset", "subsample"}),
        ("data/builtin_words.py", "", "USED = 1", {"dataset"}),
        (
            "data/shuffle.py",
            "from __future__",
            "USED = 1\nfrom __future__",
            RUNS | {"dataset", "subsample", "evaluate", "merge"},
        ),
        ("__init__.py", '__version__ = "', '__version__ = "9', set()),
        ("training/__init__.py", "", "USED = 1", RUNS),
    ],
)
def test_an_edit_of_this_project_makes_exactly_its_users_stale(
    copy: Path, name: str, old: str, new: str, stale: set[str]
) -> None:
    before = keys(copy)
    with edited(copy / "regft_core" / name, old, new):
        after = keys(copy)
    assert {key for key in before if before[key] != after[key]} == stale
    assert keys(copy) == before


def test_a_run_has_all_that_computes_and_nothing_else() -> None:
    code = training_code([HYPE])
    assert set(code) == {"sha256", "modules", "packages"}
    inside = {
        "training.loop",
        "training.optim",
        "training.step",
        "hooks.base",
        "training.stack",
        "methods.hype",
        "rng",
    }
    inside |= {"models.load", "models.sites", "data.encode", "data.batches", "data.examples", "phases.training_run"}
    assert {f"regft_core.{name}" for name in inside} <= set(code["modules"])
    exempt = {name for name in code["modules"] if any(name == e or name.startswith(e + ".") for e in EXEMPT)}
    assert exempt <= set(TRAINING)
    assert not {name for name in code["modules"] if "methods" in name} & {PATS, "regft_core.hooks.registry"}
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(code["packages"])
    assert not {"pydantic", "safetensors", "mlflow", "dvc", "rich", "regft"} & set(code["packages"])


def test_the_fingerprint_does_not_depend_on_where_the_code_lies(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy / "regft_core", tmp_path / "other" / "regft_core")
    assert training_code([HYPE], tmp_path / "other") == training_code([HYPE], copy) == training_code([HYPE])
    assert keys(tmp_path / "other") == keys(copy)


def test_it_is_taken_without_importing_torch_in_no_time(python: Callable[..., Any]) -> None:
    program = """
import sys, time
from regft_core.runs.fingerprint import code_of, training_scope
times = []
for _ in range(3):
    start = time.process_time()
    scope = training_scope(["regft_core.methods.hype"])
    code_of(scope.entries, None, scope.exempt)
    times.append(time.process_time() - start)
assert "torch" not in sys.modules and "pydantic" not in sys.modules
assert times[0] < 1 and min(times) < 0.1, times
"""
    done = python(program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", [*EXEMPT, *TRAINING, *sum((scope.entries for scope in STAGES.values()), ())])
def test_every_module_named_in_the_tables_exists(module: str) -> None:
    """A renamed module must be renamed there too, or it would silently count, or no longer count."""
    assert graph_of().file(module) is not None


def test_every_exemption_says_why() -> None:
    for table in (EXEMPT, *(scope.exempt for scope in STAGES.values()), distributions.NO_NUMBERS):
        assert all(len(reason) > 5 for reason in table.values())


# ----------------------------------------------------------------------------- a small project

FILES = {
    "toy/__init__.py": '__version__ = "1"',
    "toy/errors.py": "class E(Exception): ...",
    "toy/run.py": "def run():\n    from toy.training import loop\n    from toy import show",
    "toy/training/__init__.py": "",
    "toy/training/loop.py": "from ..methods import base\nfrom toy.methods.registry import find",
    "toy/methods/__init__.py": "",
    "toy/methods/base.py": "from toy.errors import E\nclass Base:\n    name = ''",
    "toy/methods/registry.py": "from toy.methods import hype, pats\nfrom toy.errors import E",
    "toy/methods/hype.py": "from toy.methods import base, noise\nSCALE = 1e-5",
    "toy/methods/pats.py": "from toy.methods import base",
    "toy/methods/noise.py": "import numpy.random, os\ntry:\n    import no_such_package\nexcept ImportError: pass",
    "toy/show.py": "import mlflow",
    "toy/data/words.csv": "a,b",
    "toy/data/README.md": "words",
    "toy/data/__init__.py": "",
}
LOOKUP = {"toy.methods.registry": "toy.methods"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.fixture
def toy(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    monkeypatch.setattr("regft_core.runs.fingerprint.LOOKUPS", LOOKUP)

    def take(*own: str, exempt: tuple[str, ...] = ("toy.show", "toy.errors")) -> dict[str, Any]:
        return code_of(["toy.run", *own], project, exempt, packages=["toy"])

    return take


def test_imports_are_followed_also_inside_functions_but_not_through_lookups(toy: Callable[..., dict[str, Any]]) -> None:
    shared = {"toy", "toy.run", "toy.training", "toy.training.loop", "toy.methods", "toy.methods.base"}
    shared |= {"toy.methods.registry"}
    assert set(toy()["modules"]) == shared
    assert set(toy("toy.methods.hype")["modules"]) == shared | {"toy.methods.hype", "toy.methods.noise"}
    assert set(toy("toy.show")["modules"]) == shared | {"toy.show"}  # an entry counts, whatever is exempt
    assert set(toy(exempt=())["modules"]) == shared | {"toy.show", "toy.errors"}


def test_packages_are_those_that_the_reached_modules_import(toy: Callable[..., dict[str, Any]]) -> None:
    assert toy()["packages"] == {}
    found = toy("toy.methods.hype")
    assert found["packages"] == {"numpy": versions(["numpy"])["numpy"], "no-such-package": None}
    assert "mlflow" in toy(exempt=())["packages"]


def test_another_version_of_a_package_is_another_key(
    toy: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, shared = toy("toy.methods.hype"), toy()
    monkeypatch.setattr(distributions, "_version", lambda name, state: "0.0.1")
    assert toy("toy.methods.hype")["sha256"] != before["sha256"]
    assert toy() == shared


def test_distributions_go_by_what_they_install() -> None:
    assert providers("sklearn") == ("scikit-learn",)
    assert providers("yaml") == ("pyyaml",)
    assert providers("google") == () or "protobuf" in providers("google")
    assert versions(["sklearn", "sys", "json", "yaml", "typing_extensions"]).keys() == {"scikit-learn"}
    assert versions(["transformers"]).keys() == {"transformers", "tokenizers"}


def test_a_module_beside_the_packages_counts_too(project: Path, toy: Callable[..., dict[str, Any]]) -> None:
    (project / "toy/methods/noise.py").write_text("import helpers.law\nimport numpy")
    (project / "helpers").mkdir()
    (project / "helpers/__init__.py").write_text("")
    (project / "helpers/law.py").write_text("x = 1")
    (project / "numpy.py").write_text("x = 1")  # an installed distribution has this name
    before = toy("toy.methods.hype")
    assert {"helpers", "helpers.law"} <= set(before["modules"])
    assert "numpy" not in before["modules"]
    assert "helpers" not in before["packages"]
    (project / "helpers/law.py").write_text("x = 2")
    assert toy("toy.methods.hype")["sha256"] != before["sha256"]


def test_a_declaration_counts_as_soon_as_somebody_reached_asks_for_it(
    project: Path, toy: Callable[..., dict[str, Any]]
) -> None:
    def with_cost(value: int) -> str:
        (project / "toy/methods/hype.py").write_text(
            f"class H:\n    name = 'hype'\n    @classmethod\n    def cost(cls): return cls.check_task()\n"
            f"    @classmethod\n    def check_task(cls): return {value}"
        )
        return str(toy("toy.methods.hype")["sha256"])

    assert with_cost(1) == with_cost(2)
    (project / "toy/training/loop.py").write_text("def step(method): return method.cost()")
    assert with_cost(1) != with_cost(2)  # through cost, which asks for check_task
    assert "toy.methods.hype:check_task" in toy("toy.methods.hype")["modules"]


def test_what_one_module_takes_from_another_counts(project: Path, toy: Callable[..., dict[str, Any]]) -> None:
    """An import for annotations only says nothing, unless another module takes the name from there."""

    def law_from(origin: str, user: str) -> str:
        (project / "toy/methods/noise.py").write_text(f"from {origin} import law\nx: law")
        (project / "toy/methods/hype.py").write_text(user)
        return str(toy("toy.methods.hype")["sha256"])

    taking, using = "from toy.methods.noise import law\nlaw()", "from toy.methods import noise\nnoise.x"
    assert law_from("json", using) == law_from("pickle", using)
    assert law_from("json", taking) != law_from("pickle", taking)


def test_a_missing_entry_and_a_broken_file_are_named(project: Path, toy: Callable[..., dict[str, Any]]) -> None:
    with raises_code(ConfigError, "module-missing", "toy/methods/mixout.py", "toy.methods.mixout"):
        toy("toy.methods.mixout")
    (project / "toy/methods/pats.py").write_text("x = 1\ndef f(:\n")
    with raises_code(ConfigError, "bad-python", "toy/methods/pats.py:2"):
        toy("toy.methods.pats")
    (project / "toy/methods/pats.py").write_bytes(b"x = 1\0")
    with raises_code(ConfigError, "bad-python", "toy/methods/pats.py"):
        toy("toy.methods.pats")
    toy("toy.methods.hype")  # what is not reached is not read


def test_data_files_count_where_they_are_wanted(project: Path) -> None:
    def take(resources: bool) -> dict[str, str]:
        modules: dict[str, str] = code_of(["toy.data"], project, packages=["toy"], resources=resources)["modules"]
        return modules

    assert set(take(False)) == {"toy", "toy.data"}
    before = take(True)
    assert set(before) == {"toy", "toy.data", "toy/data/words.csv"}
    (project / "toy/data/words.csv").write_text("a,c")
    assert take(True) != before


@given(st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True), min_size=1, max_size=5))
def test_prefixes_are_the_packages_of_a_module(parts: list[str]) -> None:
    assert prefixes(".".join(parts)) == [".".join(parts[: i + 1]) for i in range(len(parts))]


# --------------------------------------------------------------------------------- kept parses


def test_a_file_is_parsed_again_only_when_it_was_written(
    project: Path, toy: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    meaning = code_graph.meaning
    monkeypatch.setattr(code_graph, "meaning", lambda tree: parsed.append("x") or meaning(tree))
    toy("toy.methods.hype")
    assert len(parsed) == 9
    toy("toy.methods.hype")
    assert len(parsed) == 18  # too young: they could change without a trace in their times
    time.sleep(files.RACY_NS / 1e9 + 0.05)
    toy("toy.methods.hype")
    toy("toy.methods.hype")
    assert len(parsed) == 27
    (project / "toy/methods/hype.py").write_text(FILES["toy/methods/hype.py"])
    toy("toy.methods.hype")
    assert len(parsed) == 28


@pytest.mark.parametrize("sleep", [0.0, 0.2])
def test_an_edit_of_equal_size_with_the_old_time_is_seen(
    project: Path, toy: Callable[..., dict[str, Any]], sleep: float
) -> None:
    path = project / "toy/methods/hype.py"
    time.sleep(sleep)
    before = toy("toy.methods.hype")
    for digit in "2345":
        stat = path.stat()
        path.write_text(FILES["toy/methods/hype.py"].replace("1e-5", f"{digit}e-5"))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        after = toy("toy.methods.hype")
        assert after["sha256"] != before["sha256"], digit
        before = after


# ------------------------------------------------------------------------- files for the pipeline


def test_lookups_are_modules_or_packages_to_come() -> None:
    """A lookup whose package is missing would let in every entry that it imports."""
    graph: CodeGraph = graph_of()
    for module, package in LOOKUPS.items():
        assert module == package or graph.file(module) is not None


@pytest.mark.parametrize("name", ["calibration", "mistakes", "per_class"])
def test_what_an_evaluation_finds_has_numpys_version_in_its_key(name: str) -> None:
    """Also where nothing but numpy computes it; torch's only where the model is asked."""
    packages = stage_code("evaluation", [f"regft_core.evaluations.{name}"])["packages"]
    assert "numpy" in packages
    assert "torch" not in packages


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("methods/fisher.py", "fit_cost=Cost(1, 1)", "fit_cost=Cost(2, 1)"),
        ("methods/r3f.py", "smallest_effect=options.scale or None", "smallest_effect=None"),
        ("methods/lora.py", "export_tolerance=5e-6", "export_tolerance=draw()"),
        ("hooks/says.py", "padding_invariant: bool = True", "padding_invariant: bool = False"),
    ],
)
def test_what_a_method_says_about_itself_is_in_no_key(copy: Path, file: str, old: str, new: str) -> None:
    """Nor are the imports that only this takes."""
    own = [f"regft_core.methods.{name}" for name in ("fisher", "r3f", "lora")]
    before = training_code(own, copy)
    assert not any(module.startswith("regft_core.hooks.says") for module in before["modules"])
    with edited(copy / "regft_core" / file, old, new):
        assert training_code(own, copy) == before


def test_what_a_method_declares_is_in_its_key(copy: Path) -> None:
    own = ["regft_core.methods.lnsr"]
    before = training_code(own, copy)
    for old, new in (("edit_order=5", "edit_order=6"), ("needs_hidden=True", "needs_hidden=False")):
        with edited(copy / "regft_core/methods/lnsr.py", old, new):
            assert training_code(own, copy) != before
    with edited(copy / "regft_core/hooks/declare.py", "edit_order: int = 0", "edit_order: int = 1"):
        assert training_code(own, copy) != before

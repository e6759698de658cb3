from __future__ import annotations

import importlib.metadata
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
from regft_core.runs.identity import code_graph, distributions, file_states
from regft_core.runs.identity.distributions import providers, versions
from regft_core.runs.identity.fingerprint import (
    EXEMPT,
    STAGES,
    TRAINING,
    code_of,
    graph_of,
    package_root,
    stage_code,
    training_scope,
)
from regft_core.runs.identity.reach import prefixes
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
        # A word in a docstring, an annotation, a description, what a method says of itself: nobody.
        ("training/loop.py", '"""The only training loop.', '"""The loop.', set()),
        ("training/loop.py", "def _flush(self) -> None:", "def _flush(self):", set()),
        ("methods/pats.py", "scale of the noise variance (lambda)", "factor of the variance", set()),
        ("methods/hype.py", "smallest_effect=options.scale or None", "smallest_effect=options.scale", set()),
        ("hooks/says.py", "default=Cost()", "default=Cost(2.0, 2.0)", {"report"}),  # says which arms have an export
        ("errors.py", "configuration: {count}", "invalid configuration: {count}", set()),
        # What keeps, schedules, checks or identifies runs: nobody.
        ("store/locks.py", '"host"', '"machine"', set()),
        ("execution/executors/__init__.py", "R = TypeVar", "UNUSED = 1\nR = TypeVar", set()),
        ("config/schema/report.py", "0.95, gt=0.5", "0.9, gt=0.5", {"report"}),  # the report's own default
        ("config/checks/tasks.py", "", "UNUSED = 1", set()),
        ("run/keys.py", "RUN_FORMAT = 3", "RUN_FORMAT = 4", set()),
        ("hooks/compose.py", "2.0**-24", "2.0**-23", set()),
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
        ("rng.py", "sha256", "sha512", RUNS | {"dataset", "subsample", "evaluate", "evaluation", "report"}),
        ("training/new.py", "", "UNUSED = 1", set()),
        ("run/training_run.py", "import torch\n", "import torch\nimport scipy\nscipy.x()\n", RUNS),
        ("run/training_run.py", "", "USED = 1", RUNS),  # of an entry everything counts
        ("models/load.py", "or 0.02", "or 0.03", {"hype", "pats", "evaluate"}),
        ("scoring/ood.py", "own_labels[-1]", "own_labels[0]", {"evaluate", "evaluation", "merge", "report"}),
        ("kinds/_judging.py", "-3.09", "-3.08", {"evaluate", "evaluation", "merge"}),
        ("kinds/new.py", "", "UNUSED = 1", set()),
        ("data/batches.py", "return 1 << 10 if", "return 1 << 11 if", {"evaluate", "merge"}),
        ("statistics/bootstrap.py", "", "UNUSED = 1", set()),
        ("statistics/bootstrap.py", "", "print('loaded')", {"report"}),  # acts when it is imported
        ("reporting/page/report.html.j2", "<", "< ", {"report"}),
        ("reporting/figures/svg.py", "", "UNUSED = 1", set()),
        ("data/prepare.py", "kind-mismatch", "kinds-mismatch", {"dataset"}),
        ("data/builtin_words.py", "GOOD = (", "GOOD = ('fine',", {"dataset"}),
        ("data/shuffle.py", "    result = list(items)", "    'words'\n    result: list[T] = list(items)", set()),
        ("data/shuffle.py", "+ 1)", "+ 2)", RUNS | {"dataset", "subsample", "evaluate"}),
        ("__init__.py", '__version__ = "', '__version__ = "9', set()),
        ("training/__init__.py", "", "UNUSED = 1", set()),
        ("training/__init__.py", "", "print('loaded')", RUNS),
    ],
)
def test_an_edit_of_this_project_makes_exactly_its_users_stale(
    copy: Path, name: str, old: str, new: str, stale: set[str]
) -> None:
    before = keys(copy)
    with edited(copy / "regft_core" / name, old, new):
        after = keys(copy)
    assert {key for key in before if before[key] != after[key]} == stale, "the keys that are stale"
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
    inside |= {"models.load", "models.sites", "data.encode", "data.batches", "data.examples", "run.training_run"}
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
from regft_core.runs.identity.fingerprint import code_of, training_scope
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
    "toy/run.py": "def run():\n    from toy.training import loop\n    from toy import show\n    show.draw(loop.fit())",
    "toy/training/__init__.py": "",
    "toy/training/loop.py": "from ..methods import base\ndef fit(): return base.Base()\ndef no(): return base.more()",
    "toy/methods/__init__.py": "",
    "toy/methods/base.py": (
        "from toy.errors import E\nclass Base:\n    name = ''\n    def fit(self): raise E\ndef more(): ..."
    ),
    "toy/methods/hype.py": "from toy.methods import base, noise\nSCALE = 1e-5\nclass Hype(base.Base): law = noise.law",
    "toy/methods/pats.py": "from toy.methods import base\nclass Pats(base.Base): ...",
    "toy/methods/noise.py": (
        "import numpy.random, os\ntry:\n    import no_such_package\nexcept ImportError:\n    no_such_package = None\n"
        "def law(): return numpy.random.normal(no_such_package)"
    ),
    "toy/show.py": "import mlflow\ndef draw(x): mlflow.log(x)",
    "toy/data/words.csv": "a,b",
    "toy/data/README.md": "words",
    "toy/data/__init__.py": "WORDS = 1",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.fixture
def toy(project: Path) -> Callable[..., dict[str, Any]]:
    def take(*own: str, exempt: tuple[str, ...] = ("toy.show", "toy.errors")) -> dict[str, Any]:
        return code_of(["toy.run", *own], project, exempt, packages=["toy"])

    return take


def test_names_are_followed_to_their_definitions_also_inside_functions(toy: Callable[..., dict[str, Any]]) -> None:
    shared = {"toy.run", "toy.training.loop", "toy.methods.base"}
    assert set(toy()["modules"]) == shared
    assert set(toy("toy.methods.hype")["modules"]) == shared | {"toy.methods.hype", "toy.methods.noise"}
    assert set(toy("toy.show")["modules"]) == shared | {"toy.show"}  # an entry counts, whatever is exempt
    assert set(toy(exempt=())["modules"]) == shared | {"toy.show", "toy.errors"}


def sha(root: Path, *entries: str, exempt: tuple[str, ...] = ()) -> str:
    return str(code_of(entries, root, exempt, packages=["toy"])["sha256"])


def write(root: Path, **modules: str) -> Path:
    for name, content in modules.items():
        path = root.joinpath("toy", *name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(content)
    return root


def test_only_what_is_reached_counts(project: Path, toy: Callable[..., dict[str, Any]]) -> None:
    before = toy()["sha256"]
    for name, old, new in (
        ("training/loop.py", "return base.more()", "return 3"),
        ("methods/base.py", "def more(): ...", "def more(): return 3"),
        ("methods/base.py", "", "class Another: ..."),
        ("show.py", "mlflow.log(x)", "print(x)"),
    ):
        with edited(project / "toy" / name, old, new):
            assert toy()["sha256"] == before
    for name, old, new in (
        ("training/loop.py", "base.Base()", "base.Base(1)"),
        ("methods/base.py", "raise E", "raise E(1)"),
        ("methods/base.py", "", "Base.name = 'changed'"),  # it acts on what is reached
        ("training/__init__.py", "", "import numpy\nnumpy.seterr(all='raise')"),  # it is imported
    ):
        with edited(project / "toy" / name, old, new):
            assert toy()["sha256"] != before


def test_definitions_of_one_name_are_told_apart(tmp_path: Path) -> None:
    one, other = "def f(): return g()\ndef g(): return 1", "def f(): return g()\ndef g(): return 2"
    user = "from toy.a import f\nfrom toy.b import f as h\ndef run(): return f() - h()"
    first = sha(write(tmp_path / "1", run=user, a=one, b=other), "toy.run")
    assert (
        sha(write(tmp_path / "2", run=user, a=other, b=one), "toy.run") != first
    )  # the same texts, used the other way
    swapped = user.replace("toy.a", "toy.c").replace("toy.b", "toy.a")
    assert sha(write(tmp_path / "3", run=swapped, c=one, a=other), "toy.run") == first  # other places
    last = user.replace("\ndef", "\nfrom toy.b import f\ndef")  # the last one binds the name, the first might be seen
    assert sha(write(tmp_path / "4", run=last, a=one, b=other), "toy.run") != first


def test_state_that_is_shared_is_told_from_state_of_ones_own(tmp_path: Path) -> None:
    head = "CACHE = {}\ndef {}(x): return CACHE.setdefault(x, len(CACHE))\n"
    put, get = head.replace("{}(", "put("), head.replace("{}(", "get(")
    run = "from toy.a import put\nfrom toy.b import get\ndef run(): return put(1), get(1)"
    own = sha(write(tmp_path / "1", run=run, a=put, b=get), "toy.run")
    shared = sha(
        write(tmp_path / "2", run=run, a=put, b=get.replace("CACHE = {}", "from toy.a import CACHE")), "toy.run"
    )
    assert own != shared

    # Four functions on two states that look alike: which of them share one counts.
    def state(pairs: str) -> str:
        functions = [f"def {name}(): return {'ab'[int(which)]}.S\n" for name, which in zip("pqrs", pairs, strict=True)]
        return "from toy import a, b\n" + "".join(functions)

    users = "from toy.c import p, q, r, s\ndef run(): return p() is q(), r() is s()"

    def pairing(pairs: str) -> str:
        return sha(write(tmp_path / pairs, run=users, c=state(pairs), a="S = {}", b="S = {}"), "toy.run")

    assert len({pairing(pairs) for pairs in ("0011", "0101", "0000")}) == 3
    assert pairing("0011") == pairing("1100")


def test_what_recurs_is_followed_once(tmp_path: Path) -> None:
    text = "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - {})"
    first = sha(write(tmp_path / "1", run=text.format(1)), "toy.run")
    assert sha(write(tmp_path / "2", run=text.format(1)), "toy.run") == first
    assert sha(write(tmp_path / "3", run=text.format(3)), "toy.run") != first


def test_a_module_as_a_value_counts_whole(tmp_path: Path) -> None:
    user = "from toy import a\ndef run(name): return getattr(a, name)()"
    first = sha(write(tmp_path / "1", run=user, a="def f(): return 1"), "toy.run")
    assert sha(write(tmp_path / "2", run=user, a="def f(): return 2"), "toy.run") != first
    star = "from toy.a import *\ndef run(): return f()"
    first = sha(write(tmp_path / "3", run=star, a="def f(): return 1"), "toy.run")
    assert sha(write(tmp_path / "4", run=star, a="def f(): return 2"), "toy.run") != first


def test_an_object_that_somebody_else_makes_counts_by_its_class(tmp_path: Path) -> None:
    user = "from toy.a import A\ndef run(a: A): return a.f()"
    first = sha(write(tmp_path / "1", run=user, a="class A:\n    def f(self): return 1"), "toy.run")
    assert sha(write(tmp_path / "2", run=user, a="class A:\n    def f(self): return 2"), "toy.run") != first


def test_a_folder_without_init_is_a_package_too(tmp_path: Path) -> None:
    root = write(tmp_path, run="from toy.deep.a import f\ndef run(): return f()", deep__a="def f(): return 1")
    (root / "toy/deep/__init__.py").unlink()
    first = sha(root, "toy.run")
    (root / "toy/deep/a.py").write_text("def f(): return 2")
    assert sha(root, "toy.run") != first


def test_a_file_that_is_no_module_may_be_an_entry(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "own.py"
    path.parent.mkdir()
    path.write_text(
        "import numpy\nfrom toy.methods.base import more\ndef f(): return g(more(), numpy)\ndef g(x, y): ..."
    )
    found = code_of([str(path)], project, (), packages=["toy"])
    assert set(found["modules"]) == {str(path), "toy.methods.base"}
    assert "numpy" in found["packages"]
    moved = path.rename(tmp_path / "own.py")
    assert code_of([str(moved)], project, (), packages=["toy"])["sha256"] == found["sha256"]
    with edited(project / "toy/methods/base.py", "def more(): ...", "def more(): return 3"):
        assert code_of([str(moved)], project, (), packages=["toy"])["sha256"] != found["sha256"]


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
    (project / "toy/methods/noise.py").write_text("import helpers.law\nimport numpy\nlaw = helpers.law.x, numpy.y")
    (project / "helpers").mkdir()
    (project / "helpers/__init__.py").write_text("")
    (project / "helpers/law.py").write_text("x = 1")
    (project / "numpy.py").write_text("y = 1")  # an installed distribution has this name
    before = toy("toy.methods.hype")
    assert "helpers.law" in before["modules"]
    assert "numpy" not in before["modules"]
    assert "helpers" not in before["packages"]
    (project / "helpers/law.py").write_text("x = 2")
    assert toy("toy.methods.hype")["sha256"] != before["sha256"]


def test_a_declaration_counts_as_soon_as_somebody_reached_asks_for_it(
    project: Path, toy: Callable[..., dict[str, Any]]
) -> None:
    def with_check(value: int) -> str:
        (project / "toy/methods/hype.py").write_text(
            f"class H:\n    name = 'hype'\n    @classmethod\n    def check_options(cls): return cls.check_task()\n"
            f"    @classmethod\n    def check_task(cls): return {value}"
        )
        return str(toy("toy.methods.hype")["sha256"])

    assert with_check(1) == with_check(2)
    (project / "toy/training/loop.py").write_text("def fit(method): return method.check_options()")
    assert with_check(1) != with_check(2)  # through check_options, which asks for check_task


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


def test_data_files_beside_a_module_count(project: Path) -> None:
    def take(entry: str = "toy.data") -> dict[str, Any]:
        return code_of([entry], project, (), packages=["toy"])

    before = take()
    assert set(before["modules"]) == {"toy.data", "toy/data/words.csv"}
    (project / "toy/data/words.csv").write_text("a,c")
    assert take()["sha256"] != before["sha256"]
    assert take("toy.run")["sha256"] == take("toy.run")["sha256"]


def test_a_data_file_belongs_to_the_module_that_its_name_begins_with(project: Path) -> None:
    """So a method may bring words of its own, and adding it touches no other method."""
    methods = project / "toy/methods"

    def take() -> dict[str, str]:
        names = ("hype", "pats", "own")
        return {name: sha(project, f"toy.methods.{name}") for name in names}

    def touched(path: Path, content: str) -> set[str]:
        before = take()
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        after = take()
        return {name for name in before if before[name] != after[name]}

    (methods / "own").mkdir()
    (methods / "own/__init__.py").write_text("class Own: ...")
    assert touched(methods / "hype.json", "[1]") == {"hype"}
    assert touched(methods / "hype_words/a.bin", "1") == {"hype"}
    assert touched(methods / "hyper.json", "1") == {"hype", "pats", "own"}  # nobody's, so everybody's
    assert touched(methods / "hype.md", "words") == set()
    assert touched(methods / "own/words.txt", "1") == {"own"}
    assert touched(methods / "own/inner/words.txt", "1") == {"own"}
    assert touched(methods / "own.txt", "1") == {"own"}


@given(st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True), min_size=1, max_size=5))
def test_prefixes_are_the_packages_of_a_module(parts: list[str]) -> None:
    assert prefixes(".".join(parts)) == [".".join(parts[: i + 1]) for i in range(len(parts))]


# --------------------------------------------------------------------------------- kept parses


def test_a_file_is_parsed_again_only_when_it_was_written(
    project: Path, toy: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    meaning = code_graph.meaning
    monkeypatch.setattr(code_graph, "meaning", lambda *given: parsed.append(given[1]) or meaning(*given))
    toy("toy.methods.hype")
    number = len(set(parsed))
    assert len(parsed) == number == 10
    toy("toy.methods.hype")
    assert len(parsed) == 2 * number  # too young: they could change without a trace in their times
    time.sleep(file_states.RACY_NS / 1e9 + 0.05)
    toy("toy.methods.hype")
    toy("toy.methods.hype")
    assert len(parsed) == 3 * number
    (project / "toy/methods/hype.py").write_text(FILES["toy/methods/hype.py"])
    toy("toy.methods.hype")
    assert len(parsed) == 3 * number + 1


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


@pytest.mark.parametrize("name", ["calibration", "mistakes", "per_class"])
def test_what_an_evaluation_finds_has_numpys_version_in_its_key(name: str) -> None:
    """Also where nothing but numpy computes it; torch's only where the model is asked."""
    packages = stage_code("evaluation", [f"regft_core.evaluate.analyses.{name}"])["packages"]
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


def test_what_installs_a_package_is_what_python_says() -> None:
    ours, theirs = distributions._every_provider(), importlib.metadata.packages_distributions()
    assert {"torch", "yaml", "sklearn"} <= set(ours)
    assert all(set(found) <= set(theirs[top]) for top, found in ours.items())

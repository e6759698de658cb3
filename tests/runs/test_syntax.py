from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent, indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.runs.imports import imported_names
from regft_core.runs.syntax import meaning

ROOT = Path(__file__).resolve().parents[2]

METHOD = '''
"""A method."""
from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pydantic import Field
from toy import noise as draw
from toy.base import Regulariser, StrictModel

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)
SCALE = 0.5  # of the penalty
SETTINGS: dict[str, int] = {"width": 3}


class Options(StrictModel):
    """Options."""

    strength: float = Field(0.1, ge=0, description="how much", title="Strength")
    layers: tuple[int, ...] = ()


class Method(Regulariser):
    """The method."""

    name = "method"
    Config = Options
    off: ClassVar[dict[str, Any]] = {"strength": 0.0}
    paper = "Somebody (2020)"
    forward_order = 10

    @classmethod
    def check_task(cls, options: Options, task: Any) -> list[str]:
        return ["needs two texts"] if task.pairs else []

    @classmethod
    def cost(cls, options: Options) -> float:
        return 2.0

    @classmethod
    def fit_cost(cls, options: Options) -> float:
        return 0.5

    def backward(self, step: Any, *, passes: int = 2) -> Tensor:
        """One batch."""
        assert passes > 0, "at least one pass"
        generator = step.generator(f"method.{passes}.noise")
        try:
            loss = self.loss(step.x, step.y, 1e-3)
        except ValueError as error:
            log.warning("step %d: %s", step.index, error)
            print(f"step {step.index} failed")
            warnings.warn("it failed", stacklevel=2)
            raise RuntimeError(f"step {step.index} failed, lower the rate") from error
        self.total: float = float(loss)
        step.backward(loss)
        return loss.detach() + draw(generator)

    @torch.no_grad()
    def loss(self, x: Tensor, y: Tensor, epsilon: float = 1e-8) -> Tensor:
        if x.shape != y.shape:
            raise TypeError("shapes differ")
        return SCALE * (x - y) ** 2 / epsilon
'''


def sha(source: str) -> str:
    return meaning(ast.parse(dedent(source))).sha256


def edited(old: str, new: str) -> str:
    assert METHOD.count(old) == 1, old
    return METHOD.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A method."""', '"""Something else entirely."""'),
        ('"""A method."""', ""),
        ('        """One batch."""\n', ""),
        ("# of the penalty", ""),
        ("SCALE = 0.5", "\n\n\nSCALE  =  0.50"),
        ("SCALE * (x - y) ** 2 / epsilon", "(\n            (SCALE * (x - y) ** 2) / epsilon\n        )"),
        (
            "        step.backward(loss)\n",
            '        "a string as a comment"\n        step.backward(loss)\n        pass\n',
        ),
        ("SCALE = 0.5", '__version__ = "9"\nSCALE = 0.5'),
        # annotations, and imports for them
        ("from __future__ import annotations\n", ""),
        ("epsilon: float = 1e-8", "epsilon: Any = 1e-8"),
        ("step: Any, *, passes: int = 2) -> Tensor", "step, *, passes=2)"),
        ("self.total: float = float(loss)", "self.total = float(loss)"),
        ("SETTINGS: dict[str, int] =", "SETTINGS ="),
        ("strength: float = Field", "strength: int | None = Field"),
        ("    from torch import Tensor\n", "    from torch import Tensor, nn\n    from other import thing\n"),
        ("ClassVar\n", "ClassVar, Literal\nOther: Literal[1]\n"),
        ("import warnings\n", "import warnings\nfrom collections.abc import Sequence\nrows: Sequence[int]\n"),
        ("from toy.base import Regulariser, StrictModel", "from toy.base import StrictModel, Regulariser"),
        ("import torch\nfrom pydantic import Field\n", "from pydantic import Field\nimport torch\n"),
        # what is said
        ('"shapes differ"', 'f"shapes {x.shape} and {y.shape} differ; see {self.name(x)}"'),
        ('raise TypeError("shapes differ")', "raise TypeError"),
        ("failed, lower the rate", "failed"),
        (") from error", ")"),
        (', "at least one pass"', ""),
        ('log.warning("step %d: %s", step.index, error)', 'log.error("the step failed: %s", float(error.x))'),
        ('            log.warning("step %d: %s", step.index, error)\n', ""),
        ('print(f"step {step.index} failed")', 'print("failed", file=sys.stderr)'),
        ('            print(f"step {step.index} failed")\n', ""),
        ('warnings.warn("it failed", stacklevel=2)', 'warnings.warn("the step failed")'),
        ('description="how much", title="Strength"', 'description="how strong"'),
        # what is declared
        ("needs two texts", "needs a pair of texts"),
        ("return 2.0", "return 3.0"),
        ('{"strength": 0.0}', '{"strength": 0.0, "layers": ()}'),
        ("Somebody (2020)", "Somebody (2021)"),
    ],
)
def test_edits_that_change_nothing(old: str, new: str) -> None:
    assert sha(edited(old, new)) == sha(METHOD)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 0.5", "SCALE = 0.25"),
        ("SCALE = 0.5", 'SCALE = "0.5"'),
        ("x - y", "y - x"),
        ("x - y", "x + y"),
        ("** 2", "** -2"),
        ("x.shape != y.shape", "x.shape == y.shape"),
        ("passes > 0", "passes >= 0"),
        ("epsilon: float = 1e-8", "epsilon: float = 1e-6"),
        ("passes: int = 2", "passes: int = 3"),
        ("self, x: Tensor", "self, *, x: Tensor"),
        ("0.1, ge=0", "0.2, ge=0"),
        ("0.1, ge=0", "0.1, gt=0"),
        ("layers: tuple[int, ...] = ()", "layers: ClassVar[tuple[int, ...]] = ()"),
        ("layers: tuple[int, ...] = ()", "layers: InitVar[tuple[int, ...]] = ()"),
        ("except ValueError as", "except KeyError as"),
        ("raise TypeError(", "raise ValueError("),
        ("@torch.no_grad()", "@torch.enable_grad()"),
        ("@torch.no_grad()\n", "\n"),
        ('f"method.{passes}.noise"', 'f"method.{passes}.draw"'),
        ('f"method.{passes}.noise"', 'f"method.{passes:02d}.noise"'),
        ("1e-3", "1e-3, 2"),
        ("forward_order = 10", "forward_order = 11"),
        ('name = "method"', 'name = "methods"'),
        ("def loss", "async def loss"),
        ("        step.backward(loss)\n", ""),
        ("        step.backward(loss)\n", "        step.backward(loss)\n        step.backward(loss)\n"),
        ("import torch\n", "import numpy as torch\n"),
        ("from toy import noise as draw", "from toy import law as draw"),
        ("from toy import noise as draw", "from .toy import noise as draw"),
        ("from toy import noise as draw", "from toy import noise as draw\nimport effect"),
        ('print(f"step {step.index} failed")', "print(torch.randn(3))"),  # it moves the generator
        ('print(f"step {step.index} failed")', "print(*step.batches)"),  # it uses up an iterator
        ('print(f"step {step.index} failed")', "print((step := 1))"),
        ('print(f"step {step.index} failed")', 'print("failed", file=self.results)'),
        ('log.warning("step %d: %s", step.index, error)', "math.log(step.index)"),
        ("class Method(Regulariser)", "class Method(Regulariser, Other)"),
    ],
)
def test_edits_that_change_something(old: str, new: str) -> None:
    assert sha(edited(old, new)) != sha(METHOD)


def test_the_order_of_statements_counts() -> None:
    one, other = "        self.total: float = float(loss)\n", "        step.backward(loss)\n"
    assert sha(edited(one + other, other + one)) != sha(METHOD)


def test_a_name_that_only_looks_like_a_logger_counts() -> None:
    assert sha("log = open(x)\nlog.info('a')") != sha("log = open(x)\nlog.info('b')")
    assert sha("import logging\nlog = logging.getLogger()\nlog.info('a')") == sha("")
    assert sha("from transformers.utils import logging\nlogging.info('a')") != sha("")
    assert sha("import logging\nlog = logging.getLogger()\nlog = 3\nlog.info('a')") != sha("")
    assert sha("def print(x): return x\nprint('a')") != sha("def print(x): return x\nprint('b')")


def test_a_message_that_the_module_reads_itself_counts() -> None:
    source = "try:\n    raise Done({value})\nexcept Done as done:\n    use(done.args)"
    assert sha(source.format(value=1)) != sha(source.format(value=2))
    assert sha("def f():\n    raise StopIteration(1)") != sha("def f():\n    raise StopIteration(2)")
    assert sha("raise make(1)") != sha("raise make(2)")


def test_annotations_count_below_a_decorator_that_may_read_them() -> None:
    assert sha("@triton.jit\ndef f(x: tl.constexpr): ...") != sha("@triton.jit\ndef f(x): ...")
    assert sha("@f.register\ndef _(x: int): ...") != sha("@f.register\ndef _(x: float): ...")
    assert sha("@classmethod\ndef f(x: int): ...") == sha("@classmethod\ndef f(x: float): ...")
    assert sha("@dataclass(frozen=True)\nclass A:\n    x: int = 1") == sha(
        "@dataclass(frozen=True)\nclass A:\n    x: str = 1"
    )


def test_a_declaration_counts_where_it_is_not_one() -> None:
    """Only class methods and class attributes of classes that are looked up by name are declarations."""
    for source in (
        "class A:\n    @classmethod\n    def cost(cls): return {}",  # no entry: it has no name
        "class A:\n    name = 'a'\n    def cost(self): return {}",
        "class A:\n    name = 'a'\n    off: float = {}",  # a field of a dataclass or pydantic model
        "class A:\n    off = {}",
        "def cost(): return {}",
        "off = {}",
    ):
        assert sha(source.format(1)) != sha(source.format(2)), source


def test_declarations_and_hidden_imports_are_known_apart() -> None:
    found = meaning(ast.parse(METHOD))
    assert set(found.declared) == {"check_task", "cost", "fit_cost", "off", "paper"}
    assert found.asks == frozenset()
    assert meaning(ast.parse(edited("return 2.0", "return 3.0"))).declared["cost"] != found.declared["cost"]
    assert found.hidden == {
        "logging": "logging",
        "warnings": "warnings",
        "TYPE_CHECKING": "typing:TYPE_CHECKING",
        "Any": "typing:Any",
        "ClassVar": "typing:ClassVar",
    }
    asking = edited("step.backward(loss)", "step.backward(loss * self.cost(self.options))")
    assert meaning(ast.parse(asking)).asks == {"cost"}
    assert meaning(ast.parse("getattr(cls, 'off')")).asks == {"off"}
    assert meaning(ast.parse("self.options.variant")).asks == frozenset()  # an option of that name


def test_imports_count_by_the_names_they_bind() -> None:
    assert sha("from a import b, c\nb(c)") == sha("from a import c\nfrom a import b\nb(c)")
    assert sha("import a as b\nb()") != sha("import c as b\nb()")
    assert sha("import a as b\nb()") != sha("import a as c\nc()")
    assert sha("from a import b\nb()") != sha("from c import b\nb()")
    assert sha("import a\na.x()") != sha("import a\nimport a.b\na.x()")
    assert sha("from a import *") != sha("from b import *")
    assert sha("from a import b\nfrom c import b\nb()") == sha("from c import b\nb()")
    assert sha("import a as b\nx = b\nimport c as b\ny = b") != sha("import c as b\nx = b\nimport a as b\ny = b")
    assert sha("from a import b") != sha("")  # another module may take it from here


def test_true_one_and_float_one_differ() -> None:
    assert len({sha(f"x = {value}") for value in ("1", "1.0", "True", "'1'", "b'1'", "1j", "None", "...")}) == 8


# --------------------------------------------------------------------- properties over many programs

STATEMENTS = ["a = 1", "b = 'x'", "def f(x, y=2):\n    return x", "f()", "x = [i for i in a]", "import t\nt.u()"]
STATEMENTS += [
    "class C(B):\n    n: int = 1\n    def m(self):\n        yield 1",
    "for i in a:\n    b += i\nelse:\n    b = 0",
]
STATEMENTS += [
    "with a as c:\n    f(c)",
    "try:\n    f()\nexcept E as e:\n    pass\nfinally:\n    g(e)",
    "del a",
    "x = f'{a!r:>{b}}'",
]
HARMLESS = ["# comment", "'text'", "pass", "...", "print('said', a)", "__version__ = '3'", "logging.info('%s', a)"]
HARMLESS += [
    "q: int",
    "if TYPE_CHECKING:\n    import w",
    "from __future__ import annotations",
    "@overload\ndef f(x): ...",
]


def inside(lines: list[str], where: str) -> str:
    body = "\n".join(lines) or "pass"
    if where == "module":
        return "import logging\n" + body
    heads = {"function": "def outer(a):\n", "class": "class Outer:\n", "branch": "if c:\n"}
    return "import logging\n" + heads[where] + indent(body + "\nz = 1", "    ")


@given(
    st.lists(st.sampled_from(STATEMENTS), max_size=5),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(HARMLESS)), max_size=4),
    st.sampled_from(["module", "function", "branch"]),
)
def test_harmless_lines_anywhere_change_nothing(lines: list[str], extra: list[tuple[int, str]], where: str) -> None:
    with_extra = list(lines)
    for position, line in extra:
        with_extra.insert(min(position, len(with_extra)), line)
    # `logging` is mentioned in both, so that its import is judged alike.
    assert sha(inside([*with_extra, "logging.info('end')"], where)) == sha(
        inside([*lines, "logging.info('end')"], where)
    )


@given(st.lists(st.sampled_from(STATEMENTS), max_size=5), st.sampled_from(["module", "function", "class", "branch"]))
def test_order_and_number_of_statements_count(lines: list[str], where: str) -> None:
    first, last = inside(["w = 1", *lines], where), inside([*lines, "w = 1"], where)
    assert sha(first) != sha(last) or not lines
    assert sha(inside([*lines, "w = 1", "w = 1"], where)) != sha(last)
    assert sha(ast.unparse(ast.parse(last))) == sha(last)


@given(
    st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.binary(), st.booleans())
)
def test_any_other_constant_is_seen(value: object) -> None:
    assert sha(f"def f(x):\n    return x + {value!r}") != sha("def f(x):\n    return x + (1, 'other')")
    assert sha(f"x = {value!r}") == sha(f"x  =  ({value!r})  # comment")


@pytest.mark.parametrize("path", sorted((ROOT / "regft_core").rglob("*.py")), ids=lambda path: path.name)
def test_formatting_of_every_module_says_nothing(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    assert meaning(ast.parse(ast.unparse(tree))) == meaning(tree)


# ------------------------------------------------------------------------------------------- imports


def names(source: str, module: str = "p.q.m", is_package: bool = False) -> set[str]:
    return imported_names(ast.parse(dedent(source)), module, is_package)


def test_every_form_of_import_is_seen() -> None:
    assert names("import a.b, c as d") == {"a.b", "c"}
    assert names("from a.b import c, d as e") == {"a.b", "a.b.c", "a.b.d"}
    assert names("from . import x") == {"p.q", "p.q.x"}
    assert names("from .y import x") == {"p.q.y", "p.q.y.x"}
    assert names("from ..y import x") == {"p.y", "p.y.x"}
    assert names("from . import x", "p.q", is_package=True) == {"p.q", "p.q.x"}
    assert names("def f():\n    async def g():\n        import a") == {"a"}
    assert names("try:\n    import a\nexcept ImportError:\n    import b") == {"a", "b"}
    assert names("importlib.import_module('a.b')\n__import__('c')\nimport_module(name)") == {"a.b", "c"}
    assert names("importlib.import_module('.x', __package__)") == {"p.q.x"}
    assert names("if TYPE_CHECKING:\n    import a\nelse:\n    import b") == {"b"}
    assert names("if typing.TYPE_CHECKING:\n    import a\nimport c") == {"c"}

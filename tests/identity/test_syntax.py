from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent, indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regft_core.runs.identity.syntax import Meaning, meaning

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


def means(source: str, module: str = "toy.own", is_package: bool = False) -> Meaning:
    return meaning(ast.parse(dedent(source)), module, is_package)


def sha(source: str) -> str:
    """What the statements mean: their texts, with what each name in them stands for."""
    found = means(source)
    pieces = [(piece.text, [stands_for(found, name) for name in piece.names], piece.acts) for piece in found.pieces]
    return repr((pieces, found.unused))


def stands_for(found: Meaning, name: str) -> str:
    """A dotted name; of one that the module itself binds what an import binds it to."""
    local, _, rest = name.removeprefix("toy.own.").partition(".")
    origins = [one for one in found.bound.get(local, ()) if isinstance(one, str)] if name.startswith("toy.own.") else []
    return "|".join(f"{origin}.{rest}" for origin in origins) or name


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
        ('description="how much", title="Strength"', 'description="how strong"'),
        # what is declared
        ("needs two texts", "needs a pair of texts"),
        ('{"strength": 0.0}', '{"strength": 0.0, "layers": ()}'),
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
        ('print(f"step {step.index} failed")', "print(torch.randn(3))"),
        ("layers: tuple[int, ...] = ()", "layers: Annotated[tuple[int, ...], Field(strict=False)] = ()"),
        ('paper = "Somebody (2020)"', 'paper = "Somebody (2021)"'),
        ("class Method(Regulariser)", "class Method(Regulariser, Other)"),
    ],
)
def test_edits_that_change_something(old: str, new: str) -> None:
    assert sha(edited(old, new)) != sha(METHOD)


def test_the_order_of_statements_counts() -> None:
    one, other = "        self.total: float = float(loss)\n", "        step.backward(loss)\n"
    assert sha(edited(one + other, other + one)) != sha(METHOD)


def test_annotations_count_below_a_decorator_that_may_read_them() -> None:
    assert sha("@triton.jit\ndef f(x: tl.constexpr): ...") != sha("@triton.jit\ndef f(x): ...")
    assert sha("@f.register\ndef _(x: int): ...") != sha("@f.register\ndef _(x: float): ...")
    assert sha("@classmethod\ndef f(x: int): ...") == sha("@classmethod\ndef f(x: float): ...")
    assert sha("@dataclass(frozen=True)\nclass A:\n    x: int = 1") == sha(
        "@dataclass(frozen=True)\nclass A:\n    x: str = 1"
    )


def test_a_declaration_counts_where_it_is_not_one() -> None:
    """Only members of classes that are looked up by name are declarations, and no fields."""
    for source in (
        "class A:\n    @classmethod\n    def check_task(cls): return {}",  # no entry: it has no name
        "class A:\n    name = 'a'\n    off: float = {}",  # a field of a dataclass or pydantic model
        "class A:\n    off = {}",
        "def check_task(): return {}",
        "off = {}",
    ):
        assert sha(source.format(1)) != sha(source.format(2)), source


def test_what_a_method_says_of_itself_is_known_apart() -> None:
    def method(source: str) -> dict[str, str]:
        [found] = [piece for piece in means(source).pieces if "ClassDef(Method" in piece.text]
        return {name: piece.text for name, piece in found.said.items()}

    assert set(method(METHOD)) == {"check_task", "off"}
    assert method(edited("needs two texts", "needs a pair"))["check_task"] != method(METHOD)["check_task"]
    keyword = "class Method:\n    name = 'm'\n    def declare(o): return Declares(active=o.x > 0, says=Says({}))"
    assert set(method(keyword.format(1))) == {"says"}
    assert sha(keyword.format(1)) == sha(keyword.format(2))
    assert sha(keyword.format(1)) != sha(keyword.format(1).replace("> 0", "> 1"))

    def asks(source: str) -> set[str]:
        return {name for piece in means(source).pieces for name in piece.asks}

    assert asks(METHOD) == set()
    assert asks(edited("step.backward(loss)", "step.backward(loss * self.check_task(self.options))")) == {"check_task"}
    assert asks("getattr(cls, 'off')") == {"off"}
    assert asks("entry.declares.says.cost") == {"says"}
    assert asks("self.options.variant") == set()  # an option of that name


def test_names_count_by_what_they_stand_for() -> None:
    assert sha("from a import b, c\nb(c)") == sha("from a import c\nfrom a import b\nb(c)")
    assert sha("import a as b\nb()") != sha("import c as b\nb()")
    assert sha("import a as b\nb()") != sha("import a as c\nc(1)")
    assert sha("from a import b\nb()") != sha("from c import b\nb()")
    assert sha("from a import b\nb()") == sha("from a import b as other\nother()")
    assert sha("from a import b") != sha("")  # another module may take it from here


def names(source: str) -> list[str]:
    [piece] = means(source).pieces
    return list(piece.names)


def test_a_name_is_what_its_scope_binds() -> None:
    """Locals hide what the module binds; imports inside functions stand for what they import."""
    assert names("def f(x):\n    return x(y)") == []
    assert means("x = y = 1\ndef f(x):\n    return x(y)").pieces[1].names == ("toy.own.y",)
    assert names("def f():\n    from a import b\n    return lambda: b.c(f)") == ["a.b.c", "toy.own.f"]
    assert names("def f():\n    if g:\n        from a import b\n    else:\n        from c import b\n    b()") == [
        "a.b",
        "c.b",
    ]
    assert names("def f():\n    return [f for f in f]") == ["toy.own.f"]
    assert names("def f():\n    global f\n    f = 1") == ["toy.own.f"]
    assert names("def f():\n    [f := 1 for x in y]\n    return f") == []
    assert names("def f():\n    def g():\n        nonlocal h\n        h = f\n    h = 1") == ["toy.own.f"]
    assert names("class f:\n    f = 1\n    def g(self): return f") == ["toy.own.f", "toy.own.f"]
    assert names("def f(x=f): ...") == ["toy.own.f"]
    assert names("def f():\n    match 1:\n        case {'a': g, **f}: return f, g") == []
    assert names("def f():\n    try: ...\n    except E as f: return f") == []


def test_the_place_of_an_import_says_nothing() -> None:
    inside = means("def f():\n    import a\n    return a.b()").pieces[0]
    outside = means("import a\ndef f():\n    return a.b()").pieces[0]
    assert inside.text == outside.text
    assert (
        means("def f():\n    return g()\ndef g(): ...").pieces[0].text
        == means("from elsewhere import g\ndef f():\n    return g()").pieces[0].text
    )


def test_what_may_act_when_a_module_is_imported_is_known() -> None:
    acting = ["f()", "X['a'] = 1", "X.a = 1", "x += 1", "del x", "for i in x: ...", "x = register(f)", "assert x"]
    acting += [
        "@register\ndef f(): ...",
        "@table.register\nclass A: ...",
        "class A(B, key=1): ...",
        "if a():\n    x = 1",
    ]
    quiet = ["x = 1", "x, y = {}, []", "x = frozenset({1})", "X: int = Thing(3)", "def f(): g()", "class A(B): ..."]
    quiet += ["@dataclass(frozen=True)\nclass A: ...", "try:\n    import a\nexcept ImportError:\n    a = None"]
    quiet += ["if x:\n    def f(): ..."]
    assert all(means(source).pieces[0].acts for source in acting), [s for s in acting if not means(s).pieces[0].acts]
    assert not any(means(source).pieces[0].acts for source in quiet), [s for s in quiet if means(s).pieces[0].acts]
    assert means("if __name__ == '__main__':\n    main()").pieces == ()


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
HARMLESS = ["# comment", "'text'", "pass", "...", "'another text'"]
HARMLESS += [
    "q: int",
    "if TYPE_CHECKING:\n    import w",
    "from __future__ import annotations",
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
    assert meaning(ast.parse(ast.unparse(tree)), "x.y") == meaning(tree, "x.y")


# ------------------------------------------------------------------------------------------- imports


def loaded(source: str, module: str = "p.q.m", is_package: bool = False) -> set[str]:
    """Everything that a module refers to or imports, wherever it does."""
    found = means(source, module, is_package)
    return {*found.loaded, *(name for piece in found.pieces for name in piece.names)}


def test_every_form_of_import_is_seen() -> None:
    assert loaded("import a.b, c as d") == {"a.b", "c"}
    assert loaded("from a.b import c, d as e") == {"a.b.c", "a.b.d"}
    assert loaded("from a.b import *") == {"a.b"}
    assert loaded("from . import x") == {"p.q.x"}
    assert loaded("from .y import x") == {"p.q.y.x"}
    assert loaded("from ..y import x") == {"p.y.x"}
    assert loaded("from . import x", "p.q", is_package=True) == {"p.q.x"}
    assert "a" in loaded("def f():\n    async def g():\n        import a")
    assert "a.c" in loaded("def f():\n    async def g():\n        import a\n        a.c()")
    assert {"a", "b"} <= loaded("try:\n    import a\nexcept ImportError:\n    import b")
    assert {"a.b", "c"} <= loaded("importlib.import_module('a.b')\n__import__('c')\nimport_module(name)")
    assert "p.q.x" in loaded("importlib.import_module('.x', __package__)")
    assert loaded("if TYPE_CHECKING:\n    import a\nelse:\n    import b") == {"b"}
    assert loaded("if typing.TYPE_CHECKING:\n    import a\nimport c") == {"c"}
    assert means("if TYPE_CHECKING:\n    from a import b").typed == {"b": "a.b"}

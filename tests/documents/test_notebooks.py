"""The notebooks of examples/ run from the first cell to the last."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.promises.test_21_fit import PRESET
from tests.small_project import REPOSITORY, python
from tests.tiny import tiny_model_dir

EXAMPLES = REPOSITORY / "examples"
#: Notebook -> a line that it prints.
NOTEBOOKS = {"from_rows_to_a_model": r"^(0\.\d+|1\.0)$", "compare_methods": r"\bgradient_noise\b.*\bvanilla\b"}


def script(cell: str) -> str:
    """The code of a cell; its last value is printed, which a notebook shows."""
    tree = ast.parse(cell)
    if isinstance(last := tree.body[-1], ast.Expr):
        last.value = ast.Call(ast.Name("print", ast.Load()), [last.value], [])
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(tmp_path: Path, name: str) -> None:
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join(script("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code")
    for variable, value in {"MODEL": repr(str(tmp_path / "tiny")), "MINUTES": "1.3"}.items():
        code = re.sub(rf"(?m)^{variable} = .*", f"{variable} = {value}", code)
    shutil.copytree(tiny_model_dir(tmp_path / "scratch", "bert"), tmp_path / "tiny")
    shutil.copy(EXAMPLES / "reviews.csv", tmp_path)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "own_data.yaml").write_text(PRESET)
    (tmp_path / "params.yaml").write_text("execution: {executor: serial, device: cpu}\n")
    done = python(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert re.search(NOTEBOOKS[name], done.stdout, re.MULTILINE), done.stdout

"""Methods are found by their files: adding one touches nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import torch

from regft_core.errors import ConfigError
from regft_core.hooks.registry import discover
from regft_core.schema.method import Cost
from tests.errors import raises_code
from tests.methods.harness import Bench, same

REPOSITORY = Path(__file__).resolve().parents[2]


def example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "own_method.md").read_text(), flags=re.DOTALL)
    return textwrap.dedent("   " + blocks[0].lstrip(" "))


def test_the_documented_example_is_found_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "smooth_logits.py").write_text(example())
    found = discover([tmp_path])
    assert set(found) - set(discover()) == {"smooth_logits"}
    assert found["smooth_logits"].off == {"weight": 0.0}
    declared = found["smooth_logits"].declare(found["smooth_logits"].Config(weight=0.0))
    assert not declared.active
    assert declared.says.cost == Cost(2, 2)


def test_the_documented_example_trains(tmp_path: Path) -> None:
    (tmp_path / "smooth_logits.py").write_text(example())
    smooth_logits = discover([tmp_path])["smooth_logits"]
    weights = Bench([(smooth_logits, {"weight": 0.5})]).train()
    assert all(torch.isfinite(value).all() for value in weights.values())
    assert not same(weights, Bench().train())
    assert same(Bench([(smooth_logits, {"weight": 0.0})]).train(), Bench().train())


def test_a_name_claimed_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(example().replace('"smooth_logits"', '"hype"'))
    with raises_code(ConfigError, "name-taken", "hype", "regft_core.methods.hype"):
        discover([tmp_path])


def test_every_file_of_the_folder_is_a_method() -> None:
    files = {path.stem for path in (REPOSITORY / "regft_core" / "methods").glob("[!_]*.py")}
    assert files == {cls.__module__.rsplit(".", 1)[1] for cls in discover().values()}


def test_reading_the_methods_does_not_import_torch() -> None:
    code = "import sys; from regft_core.hooks.registry import discover; discover(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.strip() == "False"

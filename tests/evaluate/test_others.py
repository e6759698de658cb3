"""What an evaluation may find, and what its file declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.catalogue import EVALUATIONS
from regft_core.errors import ConfigError
from regft_core.evaluate import analyses
from regft_core.evaluate.analysis_result import Findings, Plot, Table
from tests.errors import raises_code
from tests.evaluate.tiny_run import evaluated, judged
from tests.small_project import also


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (lambda: Findings({"dev": {"x": float("inf")}}), "finite number"),
        (lambda: Findings({"hans": {"x": 1.0}}).as_json(["dev"]), "'hans'.*, which is no set"),
        (lambda: Findings({"dev": {"a b": 1.0}}), "match pattern"),
        (lambda: Table(("x", "y"), ((1, 2), (1, 3)), keys=1), "two rows share their name"),
        (lambda: Table(("x", "y"), (), weight="y"), "need keys"),
        (lambda: Table(("x", "y"), (), 1, plot=Plot("y", "z")), "'z' is not one of the columns"),
        (lambda: Table(("x",), ((1, 2),)), "one for each column"),
        (lambda: Table(("x",), ((float("nan"),),)), "finite number"),
    ],
)
def test_what_no_file_can_take_is_refused(found: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found()


GOOD = 'DESCRIPTION = "x"\nKINDS = ("classification",)\nNEEDS_MODEL = False\n'
RUN = "def run(run):\n    return None\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, "run: Field required"),
        (RUN, "DESCRIPTION: Field required"),
        (GOOD.replace('("classification",)', '("classes",)') + RUN, "KINDS: 0: "),
        (GOOD.replace("False", "1") + RUN, "NEEDS_MODEL: Input should be a valid boolean"),
        (GOOD + "SCORE = True\n" + RUN, "not a declaration; did you mean SCORES"),
        (GOOD + "Config = dict\n" + RUN, "Config: Input should be a subclass of StrictModel"),
    ],
)
def test_a_file_that_is_no_evaluation_says_what_is_missing(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "half.py").write_text(text)
    with also(EVALUATIONS, tmp_path), raises_code(ConfigError, "bad-evaluation-file", "half.py", message):
        analyses.find("half")


def test_the_example_of_the_guide_is_an_evaluation(tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text()
    section = guide[guide.index("## Add an evaluation") :]
    (tmp_path / "sure.py").write_text(section.split("```python\n")[1].split("```")[0])
    with also(EVALUATIONS, tmp_path):
        assert evaluated("sure", None, judged([(0.05, 0.95), (0.3, 0.7)], [0, 0])).scalars == {"dev": {"sure": 0.5}}

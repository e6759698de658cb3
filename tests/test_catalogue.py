"""Names come from files alone, of every folder that is asked for, and none of them is imported to list it."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core import metrics
from regft_core.catalogue import METRICS, OPTIMISERS
from regft_core.errors import ConfigError
from tests.errors import raises_code
from tests.small_project import also

GOOD = "KINDS = ('regression',)\nLOWER_IS_BETTER = True\nRANGE = (0.0, 9.0)\n"
SCORE = "def score(gold, predicted, positive):\n    return 0.5\n"


def test_files_are_names_and_shared_machinery_is_none(tmp_path: Path) -> None:
    for name in ("zeta.py", "_shared.py", "notes.txt"):
        (tmp_path / name).write_text("raise RuntimeError('imported')")
    before = OPTIMISERS.names()
    with also(OPTIMISERS, tmp_path):
        assert set(OPTIMISERS.names()) == {*before, "zeta"}
        with raises_code(ConfigError, "cannot-import", "zeta.py:1", "RuntimeError: imported"):
            OPTIMISERS.load("zeta")
        for name, text, position in (
            ("reads_json", "import json\njson.loads('{')", "line 1 column 2"),
            ("imports", "compile('1 +', 'other.py', 'exec')", "(other.py, line 1)"),
        ):
            (tmp_path / f"{name}.py").write_text(text)
            with raises_code(ConfigError, "cannot-import", name, position):
                OPTIMISERS.load(name)
    assert OPTIMISERS.names() == before == ("adamax", "adamw")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, "score(gold, predicted, positive) is missing"),
        (SCORE, "KINDS is None"),
        (GOOD.replace("('regression',)", "'regression'") + SCORE, "KINDS is 'regression'; give a tuple"),
        (GOOD.replace("(0.0, 9.0)", "(9.0, 0.0)") + SCORE, "RANGE is"),
        (GOOD + "DIGIT = 3\n" + SCORE, "DIGIT is not a declaration; did you mean DIGITS"),
    ],
)
def test_a_file_that_is_no_metric_says_what_is_missing(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "half_a_metric.py").write_text(text)
    with also(METRICS, tmp_path), raises_code(ConfigError, "bad-metric-file", "half_a_metric.py", message):
        metrics.find("half_a_metric")

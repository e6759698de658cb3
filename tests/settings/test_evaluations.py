"""The section ``evaluations``: names, options, tasks."""

from __future__ import annotations

import re
from pathlib import Path

from regft_core.errors import ConfigError
from regft_core.settings.project import Project
from regft_core.settings.read_project import load_project
from tests.errors import raises_code
from tests.settings.conftest import FILES, Mask, Noise


def load(root: Path, section: str, kind: str = "classification") -> Project:
    """The project with a section ``evaluations`` on its last lines."""
    for name, text in FILES.items():
        if name == "params.yaml":
            text += section + "\n"
        if kind == "regression":
            text = text.replace("labels: [negative, positive]\n", "kind: regression\n")
            text = text.replace("[accuracy, f1_macro]", "[mse]").replace("primary: accuracy", "primary: mse")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return load_project(root, {"noise": Noise, "mask": Mask})


def test_a_list_and_a_mapping_mean_the_same(tmp_path: Path) -> None:
    plain = load(tmp_path, "evaluations: [sensitivity, calibration]").params.evaluations
    assert plain == {"sensitivity": {}, "calibration": {}}
    assert load(tmp_path, "evaluations: {sensitivity: {}, calibration: {}}").params.evaluations == plain
    assert load(tmp_path, "").params.evaluations == {}
    assert load(tmp_path, "evaluations: []").params.evaluations == {}
    given = load(tmp_path, "evaluations:\n  calibration: {bins: 10}").params.evaluations
    assert given == {"calibration": {"bins": 10}}


def test_an_evaluation_that_fits_no_task_is_refused(tmp_path: Path) -> None:
    with raises_code(ConfigError, "no-task-fits", "evaluations[0]: 'calibration", "classification") as caught:
        load(tmp_path, "evaluations: [calibration, sensitivity]", "regression")
    assert re.search("take it out, or add such a task", str(caught.value))

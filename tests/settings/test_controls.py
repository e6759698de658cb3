from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.settings.controls import missing, warnings_of, with_controls
from regft_core.settings.read_project import load_project
from tests.settings.conftest import MASK, NOISE, VANILLA


def control(target: str, epochs: int) -> str:
    length = f"training: {{epochs: {epochs}}}\n"
    return f"regularisers: {{}}\ncontrol_for: {target}\ndiffers_in: [regularisers, training]\n{length}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("methods: [vanilla, mask] # a\n\n# end\n", "methods: [vanilla, quiet, still, mask] # a\n\n# end\n"),
        (
            "methods:  # which\n  - vanilla\n  - mask  # ours\n\n# end\ntraining: {}\n",
            "methods:  # which\n  - vanilla\n  - quiet\n  - still\n  - mask  # ours\n\n# end\ntraining: {}\n",
        ),
        ("methods:\n- noise\n", "methods:\n- quiet\n- still\n- noise\n"),
    ],
)
def test_only_the_names_are_inserted(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(before)
    assert with_controls(file, ["quiet", "still"]) == after


def test_missing_controls_are_found(build: Any, registry: dict[str, Any]) -> None:
    root = build(
        {
            "pipelines/methods/noise.yaml": NOISE + "controlled_by: quiet\n",
            "pipelines/methods/vanilla.yaml": VANILLA + "controlled_by: still\n",
            "pipelines/methods/mask.yaml": "controlled_by: still\n" + MASK,
            "pipelines/methods/quiet.yaml": control("noise", 21),
            "pipelines/methods/still.yaml": control("[mask, vanilla]", 23),
            "pipelines/methods/unrelated.yaml": control("split", 24),
            "pipelines/methods/split.yaml": "description: plain\n",
        }
    )
    project = load_project(root, registry)
    found = [(one.name, one.control_for) for one in project.controls if not one.listed]
    assert found == [("still", "vanilla"), ("quiet", "noise"), ("still", "mask")]
    [warning] = warnings_of(project.builder, project.methods, project.controls)
    assert "vanilla: no control is in the grid" in warning, "noise has vanilla, which is without noise"
    params = root / "params.yaml"
    params.write_text(with_controls(params, missing(project.controls)))
    after = load_project(root, registry).controls
    assert missing(after) == []
    plain = [("noise", "vanilla"), ("mask", "vanilla")]
    named = [("vanilla", "still"), ("noise", "quiet"), ("mask", "still")]
    assert sorted((one.control_for, one.name) for one in after) == sorted([*named, *plain])

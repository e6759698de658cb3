from __future__ import annotations

from typing import Any

import pytest

from regft_core.errors import ConfigError
from regft_core.settings.controls import missing, warnings_of, with_controls
from regft_core.settings.read_project import load_project
from tests.errors import raises_code
from tests.settings.conftest import MASK, NOISE, VANILLA


def control(target: str, epochs: int) -> str:
    length = f"training: {{epochs: {epochs}}}\n"
    return f"regularisers: {{}}\ncontrol_for: {target}\ndiffers_in: [regularisers, training]\n{length}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "methods: [vanilla, noise]   # plain\n\n# end\ntraining: {}\n",
            "methods: [vanilla, noise, quiet, still]   # plain\n\n# end\ntraining: {}\n",
        ),
        (
            "methods:  # which\n  - vanilla\n  - mask  # ours\n\n# end\ntraining: {}\n",
            "methods:  # which\n  - vanilla\n  - mask  # ours\n  - quiet\n  - still\n\n# end\ntraining: {}\n",
        ),
        (
            "methods: [  # which\n    vanilla, noise, # 2\n    other,\n    'mask']  # ] z\nmodel: {}\n",
            "methods: [  # which\n    vanilla, noise, # 2\n    other,\n    'mask', quiet, still]  # ] z\nmodel: {}\n",
        ),
        (
            "methods:\n  [\n    noise, mask # a ]\n    # b [c]\n  ]\nmodel: {}\n",
            "methods:\n  [\n    noise, mask, quiet, still # a ]\n    # b [c]\n  ]\nmodel: {}\n",
        ),
        ("methods:\n    - 'noise'", "methods:\n    - 'noise'\n    - quiet\n    - still"),
        ("a: é\nmethods: [mask]\n", "a: é\nmethods: [mask, quiet, still]\n"),
    ],
)
def test_only_the_names_are_inserted(before: str, after: str) -> None:
    assert with_controls(before, ["quiet", "still"]) == after


@pytest.mark.parametrize("text", ["list: &x [noise]\nmethods: *x\nother: *x\n", "methods: noise\n"])
def test_what_cannot_be_changed_safely_is_left_to_the_user(text: str) -> None:
    with raises_code(ConfigError, "cannot-edit", "quiet"):
        with_controls(text, ["quiet"])


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
    params.write_text(with_controls(params.read_text(), missing(project.controls)))
    after = load_project(root, registry).controls
    assert missing(after) == []
    plain = [("noise", "vanilla"), ("mask", "vanilla")]
    named = [("vanilla", "still"), ("noise", "quiet"), ("mask", "still")]
    assert sorted((one.control_for, one.name) for one in after) == sorted([*named, *plain])

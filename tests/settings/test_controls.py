from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.settings.controls import Control, with_controls
from regft_core.settings.read_project import load_project
from tests.settings.conftest import MASK, NOISE, VANILLA

QUIET = Control("quiet", "noise", "no noise")
STILL = Control("still", "mask", "a fixed mask")


def control(target: str, epochs: int) -> str:
    length = f"training: {{epochs: {epochs}}}\n"
    return f"regularisers: {{}}\ncontrol_for: {target}\ndiffers_in: [regularisers, training]\n{length}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "methods: [vanilla, noise]   # plain\n\n# end\ntraining: {}\n",
            "methods: [vanilla, noise, quiet, still] # plain\n\n# end\ntraining: {}\n",
        ),
        (
            "methods:  # which\n  - vanilla\n  - mask  # ours\n# end\ntraining: {a: 'b'}\n",
            "methods:  # which\n  - vanilla\n  - mask  # ours\n# end\n  - quiet\n  - still\ntraining: {a: 'b'}\n",
        ),
        ("a: é\nmethods:\n- 'noise'\n", "a: é\nmethods:\n- 'noise'\n- quiet\n- still\n"),
    ],
)
def test_names_are_added_and_comments_stay(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "params.yaml").write_text(before, encoding="utf-8")
    assert with_controls(tmp_path / "params.yaml", [QUIET, STILL]) == after


def test_missing_controls_are_found_with_theirs_in_turn(build: Any, registry: dict[str, Any]) -> None:
    root = build(
        {
            "pipelines/methods/noise.yaml": NOISE + "controlled_by: quiet\n",
            "pipelines/methods/vanilla.yaml": VANILLA + "controlled_by: still\n",
            "pipelines/methods/mask.yaml": "controlled_by: still\n" + MASK,
            "pipelines/methods/quiet.yaml": control("noise", 21) + "controlled_by: quieter\n",
            "pipelines/methods/quieter.yaml": control("quiet", 22),
            "pipelines/methods/still.yaml": control("[mask, vanilla]", 23),
            "pipelines/methods/unrelated.yaml": control("split", 24),
            "pipelines/methods/split.yaml": "description: plain\n",
        }
    )
    found = load_project(root, registry).controls
    assert [(c.name, c.control_for) for c in found.missing] == [
        ("still", "vanilla"),
        ("quiet", "noise"),
        ("quieter", "quiet"),
    ]
    (warning,) = found.warnings()
    assert warning.startswith("vanilla, quiet: no control is in the grid"), "noise has vanilla, which is without noise"
    (root / "params.yaml").write_text(with_controls(root / "params.yaml", found.missing))
    after = load_project(root, registry).controls
    assert after.missing == []
    plain = [("noise", "vanilla"), ("mask", "vanilla")]
    named = [("vanilla", "still"), ("noise", "quiet"), ("mask", "still"), ("quiet", "quieter")]
    assert sorted(after.present) == sorted([*named, *plain])

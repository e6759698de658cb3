from __future__ import annotations

import stat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regft_core.config.check_methods import Control, missing_controls
from regft_core.config.controls import with_controls, write_controls
from regft_core.config.load import load_project
from regft_core.errors import ConfigError

QUIET = Control("quiet", "noise", "no noise", "finetune")
STILL = Control("still", "mask", "a fixed mask", "search_finetune")


def control(target: str, search: bool = False) -> str:
    body = "regularisers:\n- mask: {}\nsearch: {}\n" if search else "regularisers: []\n"
    return f"{body}training: {{}}\ncontrol_for: {target}\ndiffers_by: one thing\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "protocols:  # which\n  finetune: [vanilla, noise]   # plain\n\n  # searched\n  search_finetune:\n"
            "    - mask  # ours\n\n# end\ntraining: {}\n",
            "protocols:  # which\n  finetune: [vanilla, noise, quiet]   # plain\n\n  # searched\n  search_finetune:\n"
            "    - mask  # ours\n    - still\n\n# end\ntraining: {}\n",
        ),
        (
            "protocols:\n  finetune:\n  - noise\ntraining: {}\n",
            "protocols:\n  finetune:\n  - noise\n  - quiet\n  search_finetune: [still]\ntraining: {}\n",
        ),
        ("protocols: {finetune: [noise]}\n", "protocols: {finetune: [noise, quiet], search_finetune: [still]}\n"),
        (
            "protocols:\n  finetune: [\n    noise,  # a\n    other,\n  ]\n",
            "protocols:\n  finetune: [\n    noise,  # a\n    other, quiet,\n  ]\n  search_finetune: [still]\n",
        ),
        (
            "protocols: {finetune: [], search_finetune: [mask]}\n",
            "protocols: {finetune: [quiet], search_finetune: [mask, still]}\n",
        ),
        (
            "protocols:\r\n  finetune:\r\n  - noise\r\nmodel: {}\r\n",
            "protocols:\r\n  finetune:\r\n  - noise\r\n  - quiet\r\n  search_finetune: [still]\r\nmodel: {}\r\n",
        ),
        (
            "protocols:\n    finetune:\n        - 'noise'",
            "protocols:\n    finetune:\n        - 'noise'\n        - quiet\n    search_finetune: [still]",
        ),
        (
            "a: é\nprotocols:\n  search_finetune: [mask]\n  finetune: [noise]\n",
            "a: é\nprotocols:\n  search_finetune: [mask, still]\n  finetune: [noise, quiet]\n",
        ),
    ],
)
def test_only_the_names_are_inserted(before: str, after: str) -> None:
    assert with_controls(before, [QUIET, STILL]) == after


names = st.lists(st.sampled_from(["vanilla", "noise", "r-drop", "a_b", "x1"]), min_size=1, max_size=4, unique=True)


@given(names, names, st.booleans(), st.booleans(), st.integers(1, 6), st.integers(0, 4), st.data())
@settings(max_examples=150, deadline=None)
def test_every_other_line_stays_as_it_is(
    one: list[str], other: list[str], flow: bool, flow2: bool, indent: int, deeper: int, data: Any
) -> None:
    def listing(items: list[str], flow: bool) -> str:
        if flow:
            return " [" + ", ".join(items) + "]  # note"
        return "".join(
            f"\n{' ' * (indent + deeper)}- {item}{data.draw(st.sampled_from(['', ' # note']))}" for item in items
        )

    text = f"# top\nprotocols:\n{' ' * indent}finetune:{listing(one, flow)}\n"
    text += f"{' ' * indent}search_finetune:{listing(other, flow2)}\n\nlast: 1 # end\n"
    changed = with_controls(text, [QUIET, STILL])
    assert (
        changed.replace(", quiet", "")
        .replace(", still", "")
        .replace(f"{' ' * (indent + deeper)}- quiet\n", "")
        .replace(f"{' ' * (indent + deeper)}- still\n", "")
        == text
    )


@pytest.mark.parametrize(
    "text",
    ["protocols: {}\n", "list: &x [noise]\nprotocols: {finetune: *x}\nother: *x\n", "protocols: {finetune: }\n"],
)
def test_what_cannot_be_changed_safely_is_left_to_the_user(text: str) -> None:
    with pytest.raises(ConfigError, match="add by hand: quiet"):
        with_controls(text, [QUIET])


def test_missing_controls_are_found_with_theirs_in_turn(build: Any, registry: dict[str, Any]) -> None:
    root = build(
        {
            "pipelines/methods/quiet.yaml": control("noise"),
            "pipelines/methods/quieter.yaml": control("quiet"),
            "pipelines/methods/still.yaml": control("mask", search=True),
            "pipelines/methods/unrelated.yaml": control("absent"),
        }
    )
    found = missing_controls(root, load_project(root, registry).methods)
    assert [(c.name, c.control_for, c.protocol) for c in found.missing] == [
        ("quiet", "noise", "finetune"),
        ("still", "mask", "search_finetune"),
        ("quieter", "quiet", "finetune"),
    ]
    write_controls(root, found.missing)
    project = load_project(root, registry)
    assert missing_controls(root, project.methods).missing == []
    assert project.methods["still"].protocol == "search_finetune"


def test_writing_keeps_mode_and_link_and_leaves_nothing_behind(build: Any, tmp_path: Any) -> None:
    root = build({})
    real = tmp_path / "shared.yaml"
    real.write_bytes(b"\xef\xbb\xbf" + (root / "params.yaml").read_bytes())
    real.chmod(0o640)
    (root / "params.yaml").unlink()
    (root / "params.yaml").symlink_to(real)
    before = sorted(p.name for p in root.iterdir())
    write_controls(root, [QUIET])
    assert (root / "params.yaml").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes().startswith(b"\xef\xbb\xbf# the only file")
    assert b"[vanilla, noise, quiet]  # plain" in real.read_bytes()
    assert sorted(p.name for p in root.iterdir()) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["project", "shared.yaml"]

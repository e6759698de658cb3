"""4: an edit, or a swapped encoder, while a run trains: nothing is stored under a key that it does not belong to."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load, save

from regft_core.errors import RegftError
from regft_core.grid import data
from regft_core.runs.context import project_store
from regft_core.runs.opened_project import Job, open_project
from regft_core.runs.run import run
from regft_core.runs.run_folder import OpenRun
from tests.promises.kit import edit, python, with_own_method
from tests.small_project import build


def swap_encoder(root: Path) -> None:
    """Put other weights in the place of the encoder's, with the time of the old file."""
    path = root / "models" / "tiny" / "model.safetensors"
    time = path.stat().st_mtime_ns
    tensors = {name: tensor * 1.5 for name, tensor in load(path.read_bytes()).items()}
    path.with_name("new").write_bytes(save(tensors, {"format": "pt"}))
    os.utime(path.with_name("new"), ns=(time, time))
    path.with_name("new").rename(path)


def swap_labels(root: Path) -> None:
    """Give the prepared rows, for training and for evaluation, the labels of each other."""
    for path in [*(root / "work" / "subsamples").rglob("*.jsonl"), *(root / "work" / "datasets").rglob("*.jsonl")]:
        text = path.read_text().replace('"label": 0', '"label": x').replace('"label": 1', '"label": 0')
        path.write_text(text.replace('"label": x', '"label": 1'))


def upgrade(root: Path) -> None:
    """Let this process, whose packages are loaded, find them in other versions."""
    importlib.metadata.version = lambda _: "99"  # type: ignore[assignment]


CHANGES: dict[str, Callable[[Path], None]] = {
    "code": lambda root: edit(root / "methods" / "stretched.py", "self.options.by * SCALE", "self.options.by * 2.0"),
    "data file": lambda root: edit(root / "methods" / "stretched.txt", "1.0", "1.25"),
    "settings": lambda root: edit(root / "pipelines" / "methods" / "stretched.yaml", "1.5", "1.75"),
    "encoder": swap_encoder,
    "rows": swap_labels,
}
#: What else is tried, with the code of the refusal: (kind, when) -> code.
REFUSED = {
    ("source", "prepare_dataset"): "rows-edited",
    ("package", "prepare_dataset"): "code-edited",
    ("package", "commit"): "code-edited",
}
OTHERS = {"source": lambda root: edit(root / "data" / "train.csv", "good story", "good actor"), "package": upgrade}


def attack(kind: str, moment: str) -> None:
    """Run the method in the project of this process while its input changes; print the code of the refusal."""
    root, owner = Path.cwd(), data if hasattr(data, moment) else OpenRun
    original, edits = getattr(owner, moment), [{**CHANGES, **OTHERS}[kind]] if kind else []

    def around(*given: Any, **options: Any) -> Any:
        if edits:
            edits.pop()(root)
        return original(*given, **options)

    setattr(owner, moment, around)
    try:
        data.prepare(open_project(root))
        run(Job(str(root), "stretched", "reviews", "16", 0))
    except RegftError as error:
        print(f"refused: {error.code}: {error.text}")


def stored(root: Path, kind: str = "", moment: str = "commit") -> tuple[dict[str, Any], str]:
    """Key -> bits of every run in the store after the method has run in a new process, and how that ended."""
    program = f"from {__name__} import attack; attack({kind!r}, {moment!r})"
    done = python(root, program, REGFT_TEST_TRAINED=str(root / "trained"))
    assert done.returncode == 0, done.stderr
    store, bits = project_store(open_project(root)), dict[str, Any]()
    for key in list(store.keys()):
        run = store.get(key)
        assert run is not None
        files = {name: hashlib.sha256(run.read_bytes(name)).hexdigest() for name in run.files}
        bits[key] = files | {name: run.tensors_sha256(name) for name in run.tensor_names}
    return bits, done.stdout


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(
        tmp_path_factory.mktemp("edits") / "project",
        methods=["vanilla"],
        grid={"seeds": [0]},
        execution={"checkpoint_seconds": 0},
    )
    with_own_method(root, data_file=True)
    return root


@pytest.fixture(scope="module")
def before(template: Path) -> dict[str, Any]:
    """The runs of the project as it is."""
    return stored(Path(shutil.copytree(template, template.with_name("before"))))[0]


@pytest.mark.parametrize(
    ("kind", "moment"), [*((kind, "save_checkpoint") for kind in CHANGES), ("code", "commit"), ("encoder", "commit")]
)
def test_what_is_stored_belongs_to_its_key(
    template: Path, before: dict[str, Any], tmp_path: Path, kind: str, moment: str
) -> None:
    root = Path(shutil.copytree(template, tmp_path / "project"))
    left, said = stored(root, kind, moment)
    # The settings of a project are read once; all else is read again before a run is stored.
    assert ("refused: input-changed" in said) == (kind != "settings"), said
    assert ("methods/stretched." in said) == (kind in ("code", "data file"))
    assert left.items() <= before.items()
    other = Path(shutil.copytree(template, tmp_path / "other"))
    if kind != "rows":  # prepared rows that were edited are made again
        CHANGES[kind](other)
    after = stored(other)[0]
    assert (after == before) == (kind == "rows")
    # What is run next finds nothing wrong: it gives the bits of a project that was so from the beginning.
    assert after.items() <= stored(root)[0].items()


@pytest.mark.parametrize(("kind", "moment"), REFUSED)
def test_rows_and_packages_that_change_meanwhile_leave_nothing_behind(
    template: Path, tmp_path: Path, kind: str, moment: str
) -> None:
    root = Path(shutil.copytree(template, tmp_path / "project"))
    left, said = stored(root, kind, moment)
    assert f"refused: {REFUSED[kind, moment]}" in said
    assert not left
    assert (root / "work" / "datasets" / "reviews").exists() == (moment == "commit")

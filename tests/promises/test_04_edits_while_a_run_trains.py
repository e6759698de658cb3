"""4: an edit, or a swapped encoder, while a run trains: nothing is stored under a key that it does not belong to."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load, save

from regft_core.errors import RegftError
from regft_core.evaluate import logits
from regft_core.grid import data
from regft_core.models import load as models_load
from regft_core.runs import analyses, code, made_once
from regft_core.runs.context import Job, project_store
from regft_core.runs.run import run
from regft_core.runs.run_folder import OpenRun
from regft_core.settings.read_project import open_project
from tests.promises.kit import edit, with_own_method, write_method
from tests.small_project import TASK, build, python


def swap_encoder(root: Path) -> None:
    """Put other weights in the place of the encoder's, with the time of the old file."""
    path = root / "models" / "tiny" / "model.safetensors"
    time = path.stat().st_mtime_ns
    tensors = {name: tensor * 1.5 for name, tensor in load(path.read_bytes()).items()}
    path.with_name("new").write_bytes(save(tensors, {"format": "pt"}))
    os.utime(path.with_name("new"), ns=(time, time))
    path.with_name("new").rename(path)


def swap_words(root: Path) -> None:
    """Give the words of the tokenizer each other's numbers."""
    path = root / "models" / "tiny" / "tokenizer.json"
    content = json.loads(path.read_text())
    numbers = content["model"]["vocab"]
    words = [word for word in numbers if not word.startswith("[")]
    numbers |= dict(zip(words, [numbers[word] for word in reversed(words)], strict=True))
    path.with_name("new").write_text(json.dumps(content))
    path.with_name("new").rename(path)


def swap_labels(root: Path, task: str = "") -> None:
    """Give the prepared rows, for training and for evaluation, the labels of each other."""
    for path in [
        *(root / "work" / "subsamples" / task).rglob("*.jsonl"),
        *(root / "work" / "datasets" / task).rglob("*.jsonl"),
    ]:
        text = path.read_text().replace('"label": 0', '"label": x').replace('"label": 1', '"label": 0')
        path.write_text(text.replace('"label": x', '"label": 1'))


def upgrade(root: Path) -> None:
    """Let this process, whose packages are loaded, find them in other versions."""
    code._installed = lambda _: "99"


CHANGES: dict[str, Callable[[Path], None]] = {
    "code": lambda root: edit(root / "methods" / "stretched.py", "self.options.by * SCALE", "self.options.by * 2.0"),
    "data file": lambda root: edit(root / "methods" / "stretched.txt", "1.0", "1.25"),
    "settings": lambda root: edit(root / "pipelines" / "methods" / "stretched.yaml", "1.5", "1.75"),
    "encoder": swap_encoder,
    "tokenizer": swap_words,
    "rows": swap_labels,
    "other rows": partial(swap_labels, task="other"),
}
#: What is as it was when the run is tried again: prepared rows that were edited are made again.
PUT_BACK = ("tokenizer", "rows", "other rows")
#: What a refusal names.
NAMED = {
    **{"code": "methods/stretched.py", "data file": "methods/stretched.txt"},
    **{"encoder": "model.safetensors", "tokenizer": "tokenizer.json"},
    **{"rows": "work/datasets", "other rows": "work/datasets/other/train.jsonl"},
}
#: Before which call of which function an input changes.
MOMENTS: dict[str, tuple[Any, str, int]] = {
    "preparing": (data, "prepare_dataset", 1),
    "tokenizer read": (models_load, "read_tokenizer", 1),
    "training": (OpenRun, "save_checkpoint", 1),
    "commit": (OpenRun, "commit", 1),
    "second commit": (OpenRun, "commit", 2),
    "load of the evaluation": (made_once, "load", 3),
    "evaluation": (logits, "predict", 1),
    "second analysis": (analyses, "made_once", 2),
}
#: A phase by the method of the project's own, then a mean of members that nothing of it acts on.
SOUP: dict[str, Any] = {
    "earlier": {"regularisers": {"stretched": {"by": 1.5}}},
    "finetune": {
        "start": "earlier",
        "data": {"split": 0.75},
        "repeat": {"times": 2, "merge": "greedy", "vary": ["order"]},
    },
}
#: What else is tried, with the code of the refusal: (kind, when) -> code.
REFUSED = {
    ("source", "preparing"): "rows-edited",
    ("package", "preparing"): "code-edited",
    ("package", "commit"): "code-edited",
}
OTHERS = {"source": lambda root: edit(root / "data" / "train.csv", "good story", "good actor"), "package": upgrade}


def attack(method: str, kind: str, moment: str) -> None:
    """Run a method in the project of this process while its input changes; print the code of the refusal."""
    root = Path.cwd()
    owner, name, call = MOMENTS[moment]
    original, calls = getattr(owner, name), count(1)
    tokenizer = root / "models" / "tiny" / "tokenizer.json"
    words = tokenizer.read_bytes()

    def around(*given: Any, **options: Any) -> Any:
        if next(calls) == call and kind:
            {**CHANGES, **OTHERS}[kind](root)
        return original(*given, **options)

    setattr(owner, name, around)
    try:
        data.prepare(open_project(root))
        run(Job(str(root), method, "reviews", "16", 0))
    except RegftError as error:
        print(f"refused: {error.code}: {error.text}")
        if kind == "tokenizer":  # what this process has read of it is forgotten
            tokenizer.write_bytes(words)
            run(Job(str(root), method, "reviews", "16", 0))


def stored(root: Path, method: str, kind: str = "", moment: str = "commit") -> tuple[dict[str, Any], str]:
    """Key -> bits of every run in the store after a method has run in a new process, and how that ended."""
    program = f"from {__name__} import attack; attack({method!r}, {kind!r}, {moment!r})"
    done = python(root, "-c", program, REGFT_TEST_TRAINED=str(root / "trained"))
    assert done.returncode == 0, done.stderr
    store, bits = project_store(open_project(root)), dict[str, Any]()
    for key in list(store.keys()):
        run = store.get(key)
        files = {name: hashlib.sha256(run.read_bytes(name)).hexdigest() for name in run.files}
        found = {name: run.result.get(name) for name in ("status", "scalars")}
        bits[key] = found | files | {name: run.tensors_sha256(name) for name in run.tensor_names}
    return bits, done.stdout


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(
        tmp_path_factory.mktemp("edits") / "project",
        tasks={"reviews": TASK, "other": TASK},
        methods=["vanilla"],
        grid={"seeds": [0]},
        execution={"checkpoint_seconds": 0},
        evaluations={"calibration": {}, "layer_probes": {"tasks": ["other"], "rows": 20, "test_rows": 20}},
    )
    with_own_method(root, data_file=True)
    write_method(root, "soup", phases=SOUP)
    return root


@pytest.fixture(scope="module")
def clean(template: Path) -> Callable[[str, str], dict[str, Any]]:
    """The runs of a method in a project that was so from the beginning, with a change or as it is."""

    @cache
    def made(method: str, kind: str) -> dict[str, Any]:
        root = Path(shutil.copytree(template, template.with_name(f"{method} {kind}")))
        if kind:
            CHANGES[kind](root)
        return stored(root, method)[0]

    return made


@pytest.mark.parametrize(
    ("method", "kind", "moment"),
    [
        *(("stretched", kind, "training") for kind in ("code", "data file", "settings", "encoder", "rows")),
        *(("stretched", kind, "commit") for kind in ("code", "encoder")),
        ("stretched", "tokenizer", "tokenizer read"),
        *(("stretched", "rows", moment) for moment in ("load of the evaluation", "evaluation", "second analysis")),
        ("stretched", "other rows", "second analysis"),
        *(("soup", kind, "second commit") for kind in ("code", "encoder")),
    ],
)
def test_what_is_stored_belongs_to_its_key(
    template: Path, clean: Callable[[str, str], dict[str, Any]], tmp_path: Path, method: str, kind: str, moment: str
) -> None:
    root = Path(shutil.copytree(template, tmp_path / "project"))
    before, (left, said) = clean(method, ""), stored(root, method, kind, moment)
    # The settings of a project are read once, and an earlier phase is in the store; all else is read again.
    goes_on = kind == "settings" or (method, kind) == ("soup", "code")
    assert ("refused: input-changed" in said) != goes_on, said
    assert goes_on or NAMED[kind] in said, said
    assert left.items() <= before.items()
    assert left == before or not (goes_on or kind == "tokenizer")
    after = before if kind in PUT_BACK else clean(method, kind)
    assert (after == before) == (kind in PUT_BACK)
    # What is run next finds nothing wrong: it gives the bits of a project that was so from the beginning.
    assert after.items() <= stored(root, method)[0].items()


@pytest.mark.parametrize(("kind", "moment"), REFUSED)
def test_rows_and_packages_that_change_meanwhile_leave_nothing_behind(
    template: Path, tmp_path: Path, kind: str, moment: str
) -> None:
    root = Path(shutil.copytree(template, tmp_path / "project"))
    left, said = stored(root, "stretched", kind, moment)
    assert f"refused: {REFUSED[kind, moment]}" in said
    assert not left
    assert (root / "work" / "datasets" / "reviews").exists() == (moment == "commit")

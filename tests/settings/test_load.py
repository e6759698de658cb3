from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import ConfigError
from regft_core.settings.project import Project
from regft_core.settings.read_project import load_project
from tests.errors import raises_code

PARAMS, TASK = "params.yaml", "pipelines/tasks/opinions.yaml"
FILMS, SCORES = "pipelines/tasks/films.yaml", "pipelines/tasks/scores.yaml"
NOISE, MASK = "pipelines/methods/noise.yaml", "pipelines/methods/mask.yaml"


def load(root: Path, registry: dict[str, Any], **more: Any) -> Project:
    return load_project(root, registry, **more)


def test_a_valid_project(build: Any, registry: dict[str, Any]) -> None:
    project = load(build({}), registry)
    assert list(project.methods) == ["vanilla", "noise", "mask"]
    assert list(project.tasks) == ["opinions"]
    assert project.warnings == ()
    assert project.params.training.learning_rate == 2e-5
    mask = project.methods["mask"]
    assert [(phase.name, phase.training.epochs) for phase in mask.phases] == [("search", 2), ("finetune", 2)]
    assert mask.finetune.regularisers[0][1].probability == 0.5
    assert project.methods["noise"].finetune.regularisers[0][1].scale == 1e-5
    assert project.methods["vanilla"].earlier == ()


def edit(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


def test_a_regression_task(files: dict[str, str], failures: Any, build: Any, registry: dict[str, Any]) -> None:
    params = edit(files[PARAMS], "[opinions]", "[scores]")
    assert load(build({PARAMS: params}), registry).tasks["scores"].range == (0.0, 5.0)
    for old, new, key in [
        ("metrics: [pearson]", "metrics: [pearson, f1]", "metrics[1]"),
        ("[0, 5]", "[5, 0]", "range"),
        ("range: [0, 5]", "labels: [a, b]", "labels"),
        ("range: [0, 5]", "ood: {films: {}}", "ood.films"),
        (
            "range: [0, 5]",
            "ood: {own: {source: {kind: files}, split: opinions/dev.csv, label_map: {a: b}}}",
            "ood.own",
        ),
    ]:
        assert key in [p.key for p in failures({PARAMS: params, SCORES: edit(files[SCORES], old, new)})], new


def test_files_that_only_judge_need_no_training_file(
    files: dict[str, str], failures: Any, build: Any, registry: dict[str, Any]
) -> None:
    changes = {TASK: files[TASK] + "ood: {films: {}}\n"}
    changes[FILMS] = edit(files[FILMS], "train: opinions/train.csv", "train: films/not_fetched.csv")
    assert set(load(build(changes), registry).tasks) == {"opinions", "films"}
    changes[FILMS] = edit(files[FILMS], "dev: opinions/dev.csv", "dev: films/dev.csv")
    assert [(p.file, p.line, p.key) for p in failures(changes)] == [(FILMS, 2, "splits.dev")]


def test_a_link_out_of_data_is_refused_and_one_into_the_dvc_cache_is_not(
    build: Any, registry: dict[str, Any], tmp_path: Path
) -> None:
    root = build({"data/opinions/train.csv": None})
    link = root / "data/opinions/train.csv"
    (tmp_path / "outside.csv").write_text("sentence,label\n")
    link.symlink_to(tmp_path / "outside.csv")
    with raises_code(ConfigError, "outside-data", "opinions.yaml:2: splits.train"):
        load(root, registry)
    link.unlink()
    cached = root / ".dvc/cache/files/md5/ab/cd"
    cached.parent.mkdir(parents=True)
    cached.write_text("sentence,label\n")
    link.symlink_to(cached)
    load(root, registry)


def test_warnings(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    params = edit(files[PARAMS], "[0, 1, 2, 3, 4, 5]", "[0, 1, 2]")
    params = "regft: 0.0.9\n" + edit(params, "{name: minilm}", "{name: org/encoder, revision: main}")
    changes = {
        PARAMS: params,
        TASK: edit(files[TASK], "{kind: files}", "{kind: hub, id: org/set, revision: main}"),
    }
    warnings = load(build(changes), registry).warnings
    assert len(warnings) == 4
    for part in (
        "params.yaml:1: written for regft 0.0.9",
        "params.yaml:7: 3 seeds",
        "params.yaml:3: revision 'main' of org/encoder can move",
        f"{TASK}:1: revision 'main' of org/set can move",
    ):
        assert any(part in warning for warning in warnings), part


def test_compositions_are_checked_per_method_and_task(
    files: dict[str, str], build: Any, registry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error on every task is told once; tasks that phases train on are handed over."""
    seen = []

    def check(
        registry: Any, method: Any, shared: Any, task: Any, model: Any, tasks: dict[str, Any], *, tf32: bool
    ) -> list[str]:
        task_name = next((name for name, other in tasks.items() if other is task), None)
        seen.append((method.name, task_name, shared.epochs, "scores" in tasks))
        if method.name == "noise":
            everywhere = ["has no text"] if task_name is not None else []
            return ["clashes", *everywhere, *(["has no meaning here"] if task_name == "films" else [])]
        return []

    monkeypatch.setattr("regft_core.settings.checks.methods.compose.check_method", check)
    monkeypatch.setattr("regft_core.settings.read_project.discover", lambda: registry)
    text = edit(files[MASK], "search: {", "search: {data: {task: scores}, ")
    root = build({PARAMS: edit(files[PARAMS], "[opinions]", "[opinions, films]"), MASK: text})
    with pytest.raises(ConfigError) as caught:
        load_project(root)
    assert [str(problem) for problem in caught.value.problems] == [
        f"{NOISE}:1: regularisers: clashes [bad-composition]",
        f"{NOISE}:1: regularisers: has no text [bad-composition]",
        f"{NOISE}:1: regularisers: on task films: has no meaning here [bad-composition]",
    ]
    assert set(seen) == {(m, t, 2, True) for m in ("vanilla", "noise", "mask") for t in ("opinions", "films")}

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import ConfigError
from regft_core.settings.checks.tasks import RESERVED_SETS
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


def test_a_method_overrides_the_shared_training(build: Any, registry: dict[str, Any]) -> None:
    text = "training: {epochs: 7, clip_norm: null, dropout: {hidden: 0.0}}\n"
    training = load(build({NOISE: text}), registry).methods["noise"].training
    assert (training.epochs, training.learning_rate, training.clip_norm) == (7, 2e-5, None)
    assert (training.dropout.hidden, training.dropout.attention) == (0.0, "keep")


def edit(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


def test_alternatives_of_one_value_make_one_problem(files: dict[str, str], failures: Any) -> None:
    params = edit(files[PARAMS], "100, full", "'300'")
    params = edit(params, "epochs: 2", "dropout: {hidden: x}")
    assert [problem.key for problem in failures({PARAMS: params})] == ["grid.sizes[0]", "training.dropout.hidden"]


def test_the_problems_of_all_files_are_shown_together(files: dict[str, str], failures: Any) -> None:
    changes = {
        PARAMS: edit(edit(files[PARAMS], "[0,", "[0, 0,"), "[opinions]", "[opinions, absent]"),
        TASK: edit(files[TASK], "accuracy, f1_macro", "accuracy, f2") + "ood: {films: {}, scores: {}}\n",
        FILMS: edit(files[FILMS], "columns", "colums"),
        NOISE: edit(files[NOISE], "scale", "scael"),
        MASK: "regularisers: [\n",
    }
    found = {(problem.file, problem.key) for problem in failures(changes)}
    assert found >= {
        (PARAMS, "grid.seeds[1]"),
        (PARAMS, "grid.tasks[1]"),
        (TASK, "metrics[1]"),
        (TASK, "ood.scores"),
        (FILMS, "colums"),
        (FILMS, "columns"),
        (NOISE, "regularisers.noise.scael"),
        (MASK, ""),
    }


def test_several_mistakes_of_one_task_are_all_named(files: dict[str, str], failures: Any) -> None:
    text = edit(files[TASK], "[negative, positive]", "[a, a]") + "positive_label: b\n"
    text = edit(text, "primary: accuracy", "primary: x")
    assert {problem.key for problem in failures({TASK: text})} == {"labels", "primary", "positive_label"}


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
            "ood.own.label_map",
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


def test_files_may_be_named_from_the_root(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    load(build({TASK: edit(files[TASK], "opinions/train.csv", "data/opinions/train.csv")}), registry)


def test_cells_of_two_methods_that_would_share_a_name(files: dict[str, str], failures: Any) -> None:
    changes = {
        PARAMS: edit(edit(files[PARAMS], "[opinions]", "[b-c, c]"), "- noise  # plain\n  - mask", "- a\n  - a-b"),
        "pipelines/tasks/b-c.yaml": files[TASK],
        "pipelines/tasks/c.yaml": files[TASK],
        "pipelines/methods/a.yaml": files[NOISE],
        "pipelines/methods/a-b.yaml": files[NOISE],
    }
    (problem,) = failures(changes)
    assert "would share the cell name 'a-b-c'" in problem.message


def test_warnings(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    params = edit(files[PARAMS], "[0, 1, 2, 3, 4, 5]", "[0, 1, 2]")
    params = edit(params, "{name: minilm}", "{name: org/encoder, revision: main}")
    changes = {
        PARAMS: params,
        TASK: edit(files[TASK], "{kind: files}", "{kind: hub, id: org/set, revision: main}"),
        NOISE: files[NOISE] + "controlled_by: quiet\n",
        "pipelines/methods/quiet.yaml": edit(files[NOISE], "{}", "{epochs: 1}")
        + "control_for: noise\ndiffers_in: [training]\n",
    }
    warnings = load(build(changes), registry).warnings
    assert len(warnings) == 4
    for part in (
        "params.yaml:6: 3 seeds",
        "params.yaml:2: revision 'main' of org/encoder can move",
        f"{TASK}:1: revision 'main' of org/set can move",
        "params.yaml: noise has no control in the grid, so",
    ):
        assert any(part in warning for warning in warnings), part


def test_six_seeds_and_pinned_commits_give_no_warning(files: dict[str, str], build: Any, registry: Any) -> None:
    params = edit(files[PARAMS], "{name: minilm}", f"{{name: org/encoder, revision: {'ab' * 20}}}")
    assert load(build({PARAMS: params}), registry).warnings == ()


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

    monkeypatch.setattr("regft_core.settings.checks.compositions.compose.check_method", check)
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
    assert set(seen) == {(m, t, 2, True) for m in ("vanilla", "noise", "mask") for t in ("opinions", "films", None)}


def test_a_methods_own_reading_of_pairs_must_go_with_the_shared_pooling(files: dict[str, str], failures: Any) -> None:
    changed = {NOISE: "model: {pairs: separately}\n" + files[NOISE]}
    (problem,) = failures(changed)
    assert (problem.file, problem.line, problem.key) == (NOISE, 1, "model.pairs")
    assert "with the shared section 'model' of params.yaml: pairs: separately compares" in problem.message


@pytest.mark.parametrize("name", sorted(RESERVED_SETS))
@pytest.mark.parametrize("entry", ["{}", "{source: {kind: files}, split: opinions/dev.csv}"])
def test_no_set_has_a_name_that_means_something_else_in_the_results(
    files: dict[str, str], failures: Any, name: str, entry: str
) -> None:
    task = f"{files[TASK]}ood:\n  {name}: {entry}\n"
    (problem,) = failures({TASK: task})
    assert (problem.file, problem.line, problem.key) == (TASK, 8, f"ood.{name}")
    assert problem.message == f"'{name}' is {RESERVED_SETS[name]}, so no set can be called so"
    assert problem.hint == "give the out-of-distribution set another name"


def test_another_params_file_and_text(files: dict[str, str], build: Any, registry: dict[str, Any]) -> None:
    preset = "pipelines/presets/table.yaml"
    root = build({preset: edit(files[PARAMS], "100, full", "20")})
    assert load(root, registry, params_file=preset).params.grid.sizes == (20,)
    with raises_code(ConfigError, "invalid-value", "params.yaml:5: grid.sizes"):
        load(root, registry, params_text=edit(files[PARAMS], "100, full", "1"))


def test_aliases_are_those_of_models() -> None:
    from regft_core.models.source import ALIASES
    from regft_core.settings.checks.params import MODEL_ALIASES

    assert set(MODEL_ALIASES) == set(ALIASES)


@pytest.mark.parametrize(("file", "old", "key"), [(PARAMS, "epochs: 2", ""), (NOISE, "training: {}", "training: {")])
def test_an_unknown_optimiser_is_named_with_its_line_and_the_nearest(
    files: dict[str, str], failures: Any, file: str, old: str, key: str
) -> None:
    new = key + "optimizer: adamv" + ("}" if key else "")
    (problem,) = failures({file: edit(files[file], old, new)})
    assert (problem.file, problem.key) == (file, "training.optimizer")
    assert problem.line
    assert problem.message == "unknown optimiser 'adamv'; did you mean 'adamw'? allowed: adamax, adamw"

"""A project is read: links, warnings, names that are shipped, its store, its encoder, which may have many spellings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regft_core import shipped
from regft_core.errors import ConfigError
from regft_core.models.fetch import ALIASES
from regft_core.settings.encoders import (
    UNNAMED,
    between_phases,
    in_directory,
    named,
    read_contamination,
)
from regft_core.settings.read_project import load_project
from regft_core.settings.yaml_paths import CONTAMINATION, METHODS, project_root, read, store_path
from tests.errors import raises_code
from tests.settings import conftest
from tests.settings.conftest import Failures, Load, edit
from tests.small_project import REPOSITORY

PARAMS, TASK = "params.yaml", "pipelines/tasks/opinions.yaml"
FILMS, SCORES = "pipelines/tasks/films.yaml", "pipelines/tasks/scores.yaml"


def test_a_regression_task(load: Load, files: dict[str, str], failures: Any) -> None:
    params = edit(files[PARAMS], "[opinions]", "[scores]")
    assert load({PARAMS: params}).tasks["scores"].range == (0.0, 5.0)
    for old, new, key in [
        ("metrics: [pearson]", "metrics: [pearson, f1]", "metrics[1]"),
        ("[0, 5]", "[5, 0]", "range"),
        ("range: [0, 5]", "labels: [a, b]", "labels"),
        ("range: [0, 5]", "ood: {films: {}}", "ood.films"),
        ("range: [0, 5]", "ood: {own: {source: {kind: files}, split: opinions/dev.csv, label_map: {a: b}}}", "ood.own"),
    ]:
        assert key in [p.key for p in failures({PARAMS: params, SCORES: edit(files[SCORES], old, new)})], new


def test_files_that_only_judge_need_no_training_file(load: Load, files: dict[str, str], failures: Any) -> None:
    changes = {TASK: files[TASK] + "ood: {films: {}}\n"}
    changes[FILMS] = edit(files[FILMS], "train: opinions/train.csv", "train: films/not_fetched.csv")
    assert set(load(changes).tasks) == {"opinions", "films"}
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
        load_project(root, registry)
    link.unlink()
    cached = root / ".dvc/cache/files/md5/ab/cd"
    cached.parent.mkdir(parents=True)
    cached.write_text("sentence,label\n")
    link.symlink_to(cached)
    load_project(root, registry)


def test_warnings(load: Load, files: dict[str, str]) -> None:
    params = edit(files[PARAMS], "[0, 1, 2, 3, 4, 5]", "[0, 1, 2]")
    params = "regft: 0.0.9\n" + edit(params, "{name: minilm}", "{name: org/encoder, revision: main}")
    changes = {PARAMS: params, TASK: edit(files[TASK], "{kind: files}", "{kind: hub, id: org/set, revision: main}")}
    warnings = load(changes).warnings
    assert len(warnings) == 4
    for part in (
        "params.yaml:1: written for regft 0.0.9",
        "params.yaml:7: 3 seeds",
        "params.yaml:3: revision 'main' of org/encoder can move",
        f"{TASK}:1: revision 'main' of org/set can move",
    ):
        assert any(part in warning for warning in warnings), part


def test_a_name_in_both_is_an_error_unless_the_project_says_override(tmp_path: Path) -> None:
    """A project's own files come first, then those that the package ships."""
    calm = "description: shipped\n"
    theirs, own = (root / METHODS / "calm.yaml" for root in (shipped.FOLDER, tmp_path))
    for path, text in ((theirs, calm), (own, "description: own\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with raises_code(ConfigError, "name-taken", "pipelines/methods/calm.yaml", str(shipped.FOLDER), "override: true"):
        read(tmp_path, METHODS, "calm")
    own.write_text("override: true\ndescription: own\n")
    found = read(tmp_path, METHODS, "calm")
    assert found.data == {"description": "own"}  # the choice is no value of the method
    assert found.place(("description",)).line == 2
    own.write_text(calm)  # the same file is no clash, as where a project was copied
    assert read(tmp_path, METHODS, "calm") is not None


# ------------------------------------------------------------------------------------------- the store


def test_places_of_its_own_are_fine_and_a_link_into_another_is_not(
    load: Load, build: Any, failures: Any, tmp_path: Path
) -> None:
    for path in (".regft", "runs/store", "datax", str(tmp_path / "shared"), "../shared", "~/regft-runs"):
        load({"params.yaml": conftest.PARAMS + f"store: {{path: {path}}}\n"})
    root = build({})
    (root / "work").mkdir()
    (root / "link").symlink_to(root / "work", target_is_directory=True)
    (problem,) = failures({"params.yaml": conftest.PARAMS + "store: {path: link}\n"})
    assert problem.code == "store-in-folder-of-others"


def test_a_copy_below_dvc_tmp_uses_the_store_of_the_project(
    build: Any, registry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_ROOT", raising=False)
    project = build({})
    params = load_project(project, registry).params
    copy = project / ".dvc" / "tmp" / "exps" / "tmp1234"
    copy.mkdir(parents=True)
    monkeypatch.setenv("DVC_ROOT", str(project))
    assert store_path(copy, params) == store_path(project, params) == project / ".regft"
    # A project that a stage of another one runs is on its own.
    assert store_path(tmp_path / "other", params) == tmp_path / "other" / ".regft"
    (project / "params.yaml").unlink()
    assert project_root(copy) == copy  # DVC_ROOT is no project of regft


# ----------------------------------------------------------------------------------------- the encoder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with everything that the validator looks at, without torch."""
    directory = tmp_path / "encoder"
    directory.mkdir()
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 64}
    (directory / "config.json").write_text(json.dumps({"model_type": "bert", **sizes}))
    (directory / "model.safetensors").write_bytes(b"")
    (directory / "vocab.txt").write_text("[PAD]")
    return directory


def test_an_encoder_on_this_disk_is_looked_into(load: Load, failures: Failures, model: Path) -> None:
    def params(section: str) -> dict[str, str | None]:
        return {PARAMS: conftest.PARAMS.replace("{name: minilm}", section)}

    load(params(f"{{name: {model}, max_length: 64}}"))
    (problem,) = failures(params(f"\n  name: {model}\n  max_length: 65"))
    assert (problem.file, problem.line, problem.key) == ("params.yaml", 4, "model.max_length")
    assert problem.message.startswith("65 tokens, but")
    assert "position embeddings for 64 only" in problem.message
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    (model / "vocab.txt").unlink()
    found = failures(params(f"{{name: {model}, max_length: 65, revision: main}}"))
    assert [p.key for p in found] == ["model.revision", "model.max_length", "model.name", "model.name"]
    assert "pickle format" in found[2].message
    assert "no tokenizer" in found[3].message


# ----------------------------------------------------------------------------------------- which encoder a name means


LARGE = named("FacebookAI/roberta-large")
CONFIG = {"_name_or_path": "roberta-large"}


@pytest.mark.parametrize(
    ("name", "same"),
    [
        # The organisation, where it is the known one, and the case of letters do not matter.
        *((name, True) for name in ("roberta-large", "facebookai/RoBERTa-Large", "FacebookAI/roberta-large")),
        *((name, False) for name in ("someone/roberta-large", "roberta-base", "roberta-large-mnli", "minilm")),
        ("xlm-roberta-large", False),
    ],
)
def test_which_names_are_one_encoder(name: str, same: bool) -> None:
    assert named(name).same(LARGE) == LARGE.same(named(name)) == same


def test_a_tuned_checkpoint_is_its_start_after_the_task() -> None:
    tuned = named("roberta-large-mnli")
    assert (tuned.name, tuned.trained_on) == ("FacebookAI/roberta-large", ("mnli",))
    assert tuned.same(LARGE.after("mnli"))
    assert tuned.title == "roberta-large, tuned on mnli"


@pytest.mark.parametrize(
    ("path", "config"), [("/models/mine", CONFIG), ("/hub/models--FacebookAI--roberta-large/snapshots/722cf/", {})]
)
def test_a_directory_is_what_its_configuration_says(path: str, config: dict[str, Any]) -> None:
    assert in_directory(path, config).same(LARGE)


@pytest.mark.parametrize(
    "config",
    [{}, {**CONFIG, "architectures": ["RobertaForSequenceClassification"]}, {**CONFIG, "finetuning_task": "x"}],
)
def test_a_directory_without_an_origin_or_with_a_task_behind_it_is_not(config: dict[str, Any]) -> None:
    for path in ("/models/roberta-large", "roberta-large"):
        assert not in_directory(path, config).same(LARGE)


def test_tuned_directories() -> None:
    found = in_directory(
        "m", CONFIG | {"finetuning_task": "MNLI", "architectures": ["RobertaForSequenceClassification"]}
    )
    assert found.same(named("roberta-large-mnli"))
    found = in_directory("m", CONFIG | {"architectures": ["RobertaForSequenceClassification"]})
    assert found.trained_on == (UNNAMED,)


MNLI, SNLI = ({"task": task, "labels": True} for task in ("mnli", "snli"))


@pytest.mark.parametrize(
    ("phases", "found"),
    [
        ({}, ()),
        ({"between": {"start": "checkpoint", "data": MNLI}}, ("mnli",)),
        ({"between": {"start": "checkpoint", "data": {"task": "rte", "labels": True}}}, ()),  # the task itself
        ({"text": {"start": "checkpoint", "data": {"task": "mnli", "labels": False}}}, ()),
        ({"other": {"start": "checkpoint", "data": MNLI}, "between": {"start": "checkpoint", "data": SNLI}}, ("snli",)),
        (
            {"first": {"start": "checkpoint", "data": MNLI}, "between": {"start": "first", "data": SNLI}},
            ("mnli", "snli"),
        ),
    ],
)
def test_what_the_last_phase_starts_from(phases: dict[str, Any], found: tuple[str, ...]) -> None:
    last = {"start": list(phases)[-1] if phases else "checkpoint", "data": {"task": None, "labels": True}}
    assert between_phases({**phases, "finetune": last}, "rte") == found


# --------------------------------------------------------------------------------------- contamination


TABLE = """\
trained_on:
  ours:
    encoders: [minilm, elsewhere/encoder]
    source: its card
    tasks: {opinions: Opinions 1.0, reviews: All reviews}
"""


def test_the_shipped_table_names_tasks_and_encoders_that_there_are() -> None:
    shipped = read_contamination(REPOSITORY)
    tasks = {path.stem for path in (REPOSITORY / "pipelines" / "tasks").glob("*.yaml")}
    for entry in shipped.trained_on.values():
        assert set(entry.tasks) <= tasks
    for alias in ALIASES:
        assert set(shipped.of(alias, tasks)) == {
            *("snli", "snli_two_way", "mnli", "mnli_two_way", "qqp", "paws_qqp", "qnli")
        }
    assert shipped.of("minilm", ["sst2", "stsb", "cue_pair"]) == {}
    assert shipped.of("bert-base-uncased", tasks) == {}
    assert "model card" in shipped.of("minilm", ["qqp"])["qqp"]


def test_of_a_table(build: Any) -> None:
    seen = read_contamination(build({CONTAMINATION: TABLE}))
    assert seen.of("elsewhere/encoder", ["reviews", "films", "opinions"]) == {
        "reviews": "All reviews (its card)",
        "opinions": "Opinions 1.0 (its card)",
    }
    assert seen.of("another", ["opinions"]) == {}
    assert list(seen.sentences("minilm", "opinions", ["reviews", "films"])) == [
        "minilm was trained on Opinions 1.0 (its card): scores on opinions are not those of few labels alone",
        "minilm was trained on All reviews (its card): for it the set reviews, which judges opinions, is not out of "
        "distribution",
    ]

"""Each class of mistake in a YAML file is told with its file, line, key and code; words are free."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from ruamel.yaml import YAML

from regft_core.errors import ConfigError
from regft_core.settings.document import Document
from regft_core.settings.validate import validate
from tests.settings.conftest import edit, load_project

PARAMS, TASK = "params.yaml", "pipelines/tasks/opinions.yaml"
NOISE, MASK = "pipelines/methods/noise.yaml", "pipelines/methods/mask.yaml"


FILES = "{kind: files}\nsplits: {train: opinions/train.csv, dev: opinions/dev.csv}"
#: (file, text to replace, where it is empty: to write below; replacement; line, code). More: tests/promises/test_11.
MISTAKES: list[tuple[str, str, str, int, str]] = [
    (PARAMS, "epochs: 2", "optimizer: adamv", 12, "invalid-value"),
    (PARAMS, "model: {name: minilm}", "model: minilm", 2, "invalid-value"),
    (PARAMS, "training:\n  epochs: 2\n  learning_rate: 2e-5\n", "", 0, "key-missing"),
    (PARAMS, "minilm", '"mini\\0lm"', 2, "bad-character"),
    (PARAMS, "minilm", '"mini\\ud800lm"', 2, "yaml-syntax"),
    (PARAMS, "- mask", "- noise", 10, "listed-twice"),
    (PARAMS, "- vanilla\n  ", "", 14, "not-listed"),
    (PARAMS, "- mask", "- ../mask", 10, "invalid-value"),
    (PARAMS, "{name: minilm}", "{name: org/encoder, revision: '<commit>'}", 2, "bad-revision"),
    (PARAMS, "minilm", "params.yaml", 2, "revision-missing"),
    (PARAMS, "minilm", "~nobody_here/x", 2, "bad-path"),
    (PARAMS, "", "regft: v0.1.0", 16, "invalid-value"),
    (PARAMS, "# the only file that users edit", "regft: 99.0.0\na_section_of_99: 1", 1, "newer-version"),
    *(
        (PARAMS, "", f"store: {{path: {path}}}", 16, code)
        for path, code in (
            ("./data/../data/runs", "store-in-folder-of-others"),
            (".git/x", "store-in-folder-of-others"),
            (".", "store-around-project"),
            ("..", "store-around-project"),
            ("params.yaml/x", "not-a-directory"),
            ("~nobody_here/x", "bad-path"),
        )
    ),
    (PARAMS, "", "ood: [film]", 16, "unknown-set"),
    (PARAMS, "", "ood: nothing", 16, "invalid-value"),
    *(
        (TASK, "{kind: files}", json.dumps({"kind": "hub", "id": name, "revision": "a" * 40}), 1, "invalid-value")
        for name in ("..", "a/..", "a..b/c", "-a/b", "a/b/c", "a/b\n")
    ),
    (PARAMS, "report: {}", "report: {published: hype_tabel1}", 15, "unknown-table"),
    (PARAMS, "report: {}", "report: {averages: {x: [opinion]}}", 15, "not-listed"),
    (PARAMS, "report: {}", "report: {averages: {x: [[opinions, opinions/film]]}}", 15, "unknown-set"),
    (PARAMS, "report: {}", "report: {decide_by: film}", 15, "unknown-set"),
    (PARAMS, "", "evaluations: [calibraton]", 16, "unknown-evaluation"),
    (PARAMS, "", "evaluations: [views, views]", 16, "listed-twice"),
    (PARAMS, "", "evaluations: calibration", 16, "invalid-value"),
    (PARAMS, "", "evaluations:\n  calibration: {bins: 1}", 17, "invalid-value"),
    (PARAMS, "", "task_settings: {opinion: {}}", 16, "not-listed"),
    (PARAMS, "", "task_settings: {opinions: {training: {steps_factor: 2}}}", 16, "unknown-key"),
    (PARAMS, "", "task_settings: {opinions: {training: {epochs: 0}}}", 16, "invalid-value"),
    (PARAMS, "", "method_settings: {nose: {}}", 16, "not-listed"),
    (PARAMS, "", "method_settings: {noise: {regularisers: {nose: {}}}}", 16, "regulariser-absent"),
    # A method whose file has no regularisers at all became another one.
    (PARAMS, "", "method_settings: {mask: {phases: {search: {regularisers: {noise: {}}}}}}", 16, "regulariser-absent"),
    (PARAMS, "", "method_settings: {mask: {training: {epochs: 3}}}", 16, "inconsistent"),
    (PARAMS, "", "method_settings: {mask: {phases: {serch: {}}}}", 16, "phase-absent"),
    (PARAMS, "", "tuning: {methods: {mask: {phases.serch.repeat.times: [1, 2]}}}", 16, "phase-absent"),
    (PARAMS, "", "method_settings: {noise: {base: vanilla}}", 16, "base-not-needed"),
    (PARAMS, "- mask", "- louder\nmethod_settings: {louder: {base: nose}}", 11, "unknown-method"),
    # An arm whose base is an arm was left out of the grid without a word.
    (
        PARAMS,
        "- mask",
        "- loud\n  - louder\nmethod_settings: {louder: {base: loud}, loud: {base: noise}}",
        12,
        "unknown-method",
    ),
    (PARAMS, "report: {}", "report: {decide_by: [dev, dev]}", 15, "listed-twice"),
    (PARAMS, "", "tuning: {values: {model.pooling: [nose]}}", 16, "invalid-value"),
    (PARAMS, "", "tuning: {}", 16, "inconsistent"),
    (PARAMS, "", "tuning: {values: {training.learning_rat: [1.0e-5]}}", 16, "unknown-key"),
    (PARAMS, "", "tuning: {values: {learning_rate: [1.0e-5]}}", 16, "unknown-key"),
    (PARAMS, "", "tuning: {values: {regularisers.noise.scale: [1]}}", 16, "regulariser-absent"),
    (PARAMS, "", "tuning: {methods: {nose: {training.epochs: [1]}}}", 16, "not-listed"),
    (
        PARAMS,
        "",
        "tuning: {methods: {noise: {training.epochs: [1, 2]}, vanilla: {training.epochs: [1]}}}",
        16,
        "unequal-trials",
    ),
    (PARAMS, "", "tuning: {methods: {noise: [{training.epochs: 3}, {training.epochs: 3}]}}", 16, "same-trial"),
    (PARAMS, "", "tuning: {folds: 3, split: 0.5, values: {training.epochs: [1, 3]}}", 16, "inconsistent"),
    (PARAMS, "", "tuning: {values: {training.epochs: [1, 2], training.epochs.x: [1, 2]}}", 16, "keys-overlap"),
    # A value of a trial is right or wrong on the task, and with the method's own section model.
    (
        PARAMS,
        "",
        "task_settings: {opinions: {training: {epochs: 5000}}}\n"
        "tuning: {methods: {noise: {training.steps_factor: [1, 3]}}}",
        17,
        "bad-length",
    ),
    (TASK, "{kind: files}", "{}", 1, "key-missing"),
    (TASK, "{kind: files}", "{kind: hub, id: org/set}", 1, "key-missing"),
    (TASK, "{kind: files}", "{kind: hub, id: org/set, revision: 'to do'}", 1, "bad-revision"),
    (TASK, "opinions/train.csv", "/etc/passwd.csv", 2, "outside-data"),
    (TASK, "opinions/train.csv", f"{'a' * 300}.csv", 2, "not-a-file"),
    (TASK, "train: opinions/train.csv, ", "", 2, "training-split-missing"),
    (TASK, "opinions/dev.csv", "./data//opinions/./train.csv", 2, "judged-on-training-rows"),
    (TASK, "dev: opinions/dev.csv", "dev: {folds: 1}", 2, "invalid-value"),
    (TASK, "dev: opinions/dev.csv", "dev: {folds: 5, group: product}", 2, "unknown-key"),
    (TASK, "dev: opinions/dev.csv", "dev: {repeats: 2}", 2, "key-missing"),
    (TASK, "{train: opinions/train.csv, dev: opinions/dev.csv}", "{dev: 0.25}", 2, "inconsistent"),
    (TASK, "{text: sentence}", "{text: sentence, group: product}", 3, "column-missing"),
    (TASK, "{text: sentence}", "{text: sentence, text_pair: other, label: labels, id: n}", 3, "column-missing"),
    (TASK, "accuracy, f1_macro", "accuracy, f1", 5, "positive-label-missing"),
    (TASK, "accuracy, f1_macro", "accuracy, pearson", 5, "metric-does-not-fit"),
    (TASK, "[negative, positive]", "[a, a]", 4, "inconsistent"),
    (TASK, "", "positive_label: x", 7, "inconsistent"),
    (TASK, "", "range: [0, 1]", 7, "inconsistent"),
    (TASK, "", "keyword_segment: text_pair", 7, "inconsistent"),
    (TASK, "", "label_values: {'0': negativ}", 7, "inconsistent"),
    (TASK, "", "label_values: {0: negative}", 7, "bad-name"),
    (TASK, "", "ood: {film: {}}", 7, "unknown-task"),
    (TASK, "", "ood: {dev: {}}", 7, "inconsistent"),
    (TASK, "", "ood: {scores: {}}", 7, "kind-mismatch"),
    (TASK, "", "ood: {films: {labels: [a, b]}}", 7, "inconsistent"),
    (TASK, "", "ood: {films: {split: films/absent.csv}}", 7, "file-missing"),
    (TASK, "", "ood: {films: {split: opinions/train.csv}}", 7, "judged-on-training-rows"),
    (TASK, "", "ood: {own: {source: {kind: files}}}", 7, "inconsistent"),
    (TASK, "", "ood: {own: {source: {kind: files}, split: opinions/dev.csv, labels: [a, b]}}", 7, "labels-differ"),
    (TASK, "", "ood: {own: {source: {kind: files}, split: opinions/dev.csv, columns: {text: t}}}", 7, "column-missing"),
    (TASK, "", "ood: {films: {label_map: {negative: negative}}}", 7, "labels-differ"),
    (TASK, "", "ood: {films: {label_map: {negative: negativ, positive: positive}}}", 7, "labels-differ"),
    (TASK, "", "ood: {films: {label_map: {negative: positive, positive: positive}}}", 7, "labels-differ"),
    *(
        (TASK, "", f"prompt: {{template: '{template}', words: {{{words}}}}}", 7, "inconsistent")
        for template, words in (
            ("{text} it was .", "negative: sad, positive: happy"),
            ("{text} [MASK] {text_pair}", "negative: sad, positive: happy"),
            ("{text} [MASK]", "negative: sad, positive: sad"),
            ("{text} [MASK]", "negative: sad, positive: happy, positiv: old"),
        )
    ),
    (TASK, "", "training: {epochz: 3}", 7, "unknown-key"),
    (TASK, "", "model: {max_length: 3}", 7, "invalid-value"),
    ("data/opinions/dev.csv", "sentence,label\nBad,0\n", "", 2, "empty-file"),
    (NOISE, "noise: {scale: 1e-5}", "noise: ", 2, "invalid-value"),
    (NOISE, "\n  noise: {scale: 1e-5}", " noise", 1, "invalid-value"),
    (NOISE, "regularisers:\n  noise", "regularisers:\n- noise", 1, "invalid-value"),
    (NOISE, "training: {}", "training: {steps_factor: 0.1}", 3, "bad-length"),
    (NOISE, "training: {}", "training: {steps_factor: {match: noise}}", 3, "method-in-circle"),
    (NOISE, "", f"control_for: {'m' * 65}", 4, "invalid-value"),
    (NOISE, "", "control_for: noise\ndiffers_in: [training]", 4, "refers-to-itself"),
    (NOISE, "", "control_for: vanilla", 4, "inconsistent"),
    (NOISE, "", "controls: {half: {why: a}}", 4, "inconsistent"),
    (NOISE, "", "controls: {half: {why: a, compute: matched, training: {epochs: 3}}}", 4, "inconsistent"),
    (NOISE, "", "controls: {half: {why: a, phases: {finetun: {training: {epochs: 1}}}}}", 4, "control-unfit"),
    (NOISE, "", "controls: {none: {why: a, regularisers: {nose: null}}}", 4, "control-unfit"),
    (NOISE, "", "training: {}", 4, "duplicate-key"),
    (NOISE, "", 'sources: {regularisers.noise.scal: "ours: a guess"}', 4, "unknown-source"),
    (NOISE, "", 'sources: {regularisers.noise.scale: "code: a/b train.py"}', 4, "invalid-value"),
    (NOISE, "", "model: {pairs: separately}", 4, "inconsistent"),
    (MASK, "search: {", "serch: {", 4, "phase-not-before"),
    (MASK, "{training: {epochs: 2}}", "\n    method: noise\n    training: {epochs: 2}", 4, "inconsistent"),
    (MASK, "  finetune:", "  finetun:", 1, "inconsistent"),
    (MASK, "phases:", "training: {}\nphases:", 1, "inconsistent"),
    (MASK, "{training: {epochs: 2}}", "{start: finetune}", 2, "inconsistent"),
    (MASK, "{training: {epochs: 2}}", "{start: checkpoint, refit: mean_of_runs}", 2, "inconsistent"),
]


def test_one_mistake_is_told_once(files: dict[str, str], failures: Any) -> None:
    """A broken task was also one without its sets; what a task changes was told again for each method's phases."""
    broken = {TASK: edit(files[TASK], "accuracy, f1_macro", "acuracy"), PARAMS: files[PARAMS] + "ood: [x]\n"}
    assert [problem.file for problem in failures(broken)] == [TASK]
    changed = files[PARAMS] + "task_settings: {opinions: {training: {steps_facto: 3}}}\n"
    (problem,) = failures({TASK: files[TASK], PARAMS: changed})
    assert "steps_factor" not in problem.hint  # a phase alone may have it
    arms = edit(files[PARAMS], "- mask", "- loudr") + "method_settings: {louder: {base: noise}}\n"
    assert any("'louder'" in problem.hint for problem in failures({PARAMS: arms}) if problem.code == "unknown-method")


def test_a_tuned_value_is_told_where_it_is_written(files: dict[str, str], failures: Any) -> None:
    """Those for every arm were told at the line of each arm's own, and those of an arm at that of its control."""
    values = "tuning:\n  values:\n    training.learning_rat: [1.0e-5]\n"
    trials = "  methods:\n    noise:\n      - {training.epochs: 1}\n      - {training.epochz: 2}\n"
    told = {(p.line, p.key) for p in failures({PARAMS: files[PARAMS] + values + trials})}
    own = 22, "tuning.methods.noise[1].training.epochz"
    assert told == {(18, "tuning.values.training.learning_rat"), own}


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "code"), MISTAKES, ids=[f"{m[4]}-{m[2][:40]}" for m in MISTAKES]
)
def test_each_mistake_is_told_with_its_place(
    files: dict[str, str], failures: Any, file: str, old: str, new: str, line: int, code: str
) -> None:
    problems = failures({file: edit(files[file], old, new)})
    told = TASK if file.startswith("data/") else file  # where the file of rows is named
    assert (told, line, code) in [(problem.file, problem.line, problem.code) for problem in problems]
    assert not any(word in str(problem) for problem in problems for word in ("pydantic", "instance of"))


#: (file, content, line and code of every mistake): one hides no other, and nothing more is said.
SEVERAL: list[tuple[str, str, list[tuple[int, str]]]] = [
    (
        TASK,
        """\
source: {kind: files, sep: x}
splits: {train: 5, dev: opinions/absent.csv}
columns: {text: sentence}
labels: [negative, 1]
primary: pearson
keyword_segmnt: text_pair
ood:
  Third: {}
  own: {source: {kind: fils}, split: x.csv}
  films: {label_map: 7}
""",
        [
            (1, "unknown-key"),
            (2, "invalid-value"),
            (4, "invalid-value"),
            (0, "key-missing"),
            (6, "unknown-key"),
            (8, "bad-name"),
            (9, "unknown-choice"),
            (10, "invalid-value"),
        ],
    ),
    (
        NOISE,
        """\
regularisers:
  noise: {scael: 1, shape: square}
  mask: {probability: 2}
  noize: {}
training: {epochs: -1, betas: [0.9, 1.5], clip: 1, steps_factor: {mach: vanilla}}
control_for: vanila
differs_in: [regularisers]
sources: {training.epoch: "ours: a guess"}
""",
        [
            (2, "unknown-key"),
            (2, "invalid-value"),
            (3, "invalid-value"),
            (4, "unknown-regulariser"),
            (5, "invalid-value"),
            (5, "invalid-value"),
            (5, "unknown-key"),
            (5, "unknown-key"),
            (5, "key-missing"),
            (6, "unknown-method"),
            (8, "unknown-source"),
        ],
    ),
]


@pytest.mark.parametrize(("file", "content", "told"), SEVERAL, ids=["task", "method"])
def test_all_mistakes_of_a_file_are_told_at_once(
    failures: Any, file: str, content: str, told: list[tuple[int, str]]
) -> None:
    problems = failures({file: content})
    assert {problem.file for problem in problems} == {file}
    assert sorted((problem.line, problem.code) for problem in problems) == sorted(told)


#: Values of every kind, none of which a field may answer with a traceback.
ODD: list[Any] = [None, "greedyy", [[1]]]


def _places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in items for place in [(*at, key), *_places(value, (*at, key))]]


#: Every key of the schema, with a right value.
FULL = {
    PARAMS: """
      {"tuning": {"selection": "split", "split": 0.8, "trials": 2,
        "values": {"training.learning_rate": [1.0e-5, 2.0e-5]}, "methods": {"mask": {}}},
       "execution": {"device": "cpu", "executor": "serial", "workers": 1, "ray": null, "tf32": false},
       "store": {"path": ".regft", "budget_gb": 1.0}, "ood": "all",
       "task_settings": {"opinions": {"training": {"epochs": 1}, "model": {"max_length": 64}, "sizes": [50],
         "methods": {"noise": {"training": {"epochs": 3}}}}},
       "method_settings": {"noise": {"regularisers": {"noise": {"scale": 0.1}},
         "training": {"dropout": {"hidden": 0.1}}}},
       "evaluations": {"calibration": {}}, "report": {"reference": "vanilla", "averages": {"all": ["opinions"]},
         "decide_by": ["dev"], "published": []}}""",
    TASK: """
      {"label_values": {"0": "negative"}, "drop_labels": ["x"], "drop_empty": true, "positive_label": "positive",
       "keyword_segment": "text", "prompt": {"template": "{text} [MASK]", "words": {"negative": "bad",
         "positive": "good"}},
       "ood": {"films": {"split": "opinions/dev.csv", "label_map": {"negative": "negative"}},
         "own": {"source": {"kind": "files"}, "split": "opinions/dev.csv", "columns": {"text": "sentence"},
         "labels": ["a"]}},
       "submission": {"format": "glue", "files": {"a.tsv": "opinions/dev.csv"}, 
         "labels": {"negative": "0", "positive": "1"}},
       "training": {"epochs": 1}, "model": {"max_length": 64}}""",
    MASK: """
      {"phases": {"search": {"data": {"task": "films", "size": "full", "split": 0.5, "steps": "own"},
         "repeat": {"times": 2, "merge": "mean", "vary": ["order"], "variant": "paper"}, "seed": 0,
         "start": "checkpoint", "refit": "trained",
         "regularisers": {"noise": {"scale": 0.1}}, "training": {"steps_factor": {"match": "vanilla"}}},
        "finetune": {"regularisers": {"mask": {}}, "training": {"steps_factor": 2}}},
       "controls": {"none": {"why": "a", "regularisers": {"noise": null}}}, "variant_of": "vanilla",
         "combines": ["noise"],
       "control_for": "vanilla", "differs_in": ["phases"], "model": {"pooling": "mean"},
       "sources": {"phases.search": "ours: a"}}""",
}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("file", FULL)
def test_no_wrong_value_is_a_traceback(
    build: Any, registry: dict[str, Any], files: dict[str, str], file: str, step: int
) -> None:
    """Every field with a value of every kind, in quick tests of one kind in turn: valid, or problems with codes."""
    root = build({})
    whole = {**YAML(typ="safe").load(files[file]), **json.loads(FULL[file])}
    for number, place in enumerate(_places(whole)):
        for value in ODD[number % step :: step]:
            data = copy.deepcopy(whole)
            inner = data
            for part in place[:-1]:
                inner = inner[part]
            inner[place[-1]] = value
            text = yaml.safe_dump(data, sort_keys=False)
            if file != PARAMS:
                (root / file).write_text(text, encoding="utf-8")
            with suppress(ConfigError):
                load_project(root, registry, params_text=text if file == PARAMS else None)


def test_a_missing_option_of_a_model_that_is_not_strict_is_no_traceback() -> None:
    class Options(BaseModel):
        share: float

    (problem,) = validate(Options, Document({}, {}, "noise.yaml"))[1]
    assert (problem.code, problem.key) == ("key-missing", "share")

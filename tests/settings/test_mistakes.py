"""Each class of mistake in a YAML file is told with its file, line, key and code; words are free."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from regft_core.errors import ConfigError
from regft_core.settings.read_project import load_project

PARAMS, TASK = "params.yaml", "pipelines/tasks/opinions.yaml"
NOISE, MASK = "pipelines/methods/noise.yaml", "pipelines/methods/mask.yaml"
#: The last line of TASK, to add keys below it.
LAST = "primary: accuracy"


def edit(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


#: (file, text to replace, replacement, line, code)
MISTAKES: list[tuple[str, str, str, int, str]] = [
    (PARAMS, "100, full", "'300', full", 5, "invalid-value"),
    (PARAMS, "100, full", "1", 5, "invalid-value"),
    (PARAMS, "100, full", "ful", 5, "invalid-value"),
    (PARAMS, "100, full", "true", 5, "invalid-value"),
    (PARAMS, "100, full", "10.0", 5, "invalid-value"),
    (PARAMS, "[100, full]", "[]", 5, "invalid-value"),
    (PARAMS, "[100, full]", "100", 5, "invalid-value"),
    (PARAMS, "[opinions]", "opinions", 4, "invalid-value"),
    (PARAMS, "- noise", "- Noise", 9, "invalid-value"),
    (PARAMS, "- noise", "- split", 9, "unknown-method"),
    (TASK, "accuracy, f1_macro]", "macro_f1, accuracy]", 5, "unknown-metric"),
    (PARAMS, "seeds: [0,", "seeds: [-1,", 6, "invalid-value"),
    (PARAMS, "[opinions]", "[../etc]", 4, "invalid-value"),
    (
        NOISE,
        "training: {}",
        "control_for: mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm\ntraining: {}",
        3,
        "invalid-value",
    ),
    (PARAMS, "epochs: 2", "epochs: two", 12, "invalid-value"),
    (PARAMS, "2e-5", "'2e-5'", 13, "invalid-value"),
    (PARAMS, "2e-5", ".inf", 13, "invalid-value"),
    (PARAMS, "2e-5", ".nan", 13, "invalid-value"),
    (PARAMS, "epochs: 2", "precision: bf17", 12, "invalid-value"),
    (PARAMS, "epochs: 2", "dropout: {hidden: 1.5}", 12, "invalid-value"),
    (PARAMS, "epochs: 2", "betas: [0.9]", 12, "invalid-value"),
    (PARAMS, "epochs: 2", "allow_precision_loss: yes", 12, "invalid-value"),
    (PARAMS, "model: {name: minilm}", "model: {}", 2, "key-missing"),
    (PARAMS, "model: {name: minilm}", "model: minilm", 2, "invalid-value"),
    (PARAMS, "training:\n  epochs: 2\n  learning_rate: 2e-5\n", "", 0, "key-missing"),
    (PARAMS, "training:", "trainings:", 11, "unknown-key"),
    (PARAMS, "training:", "trainings:", 0, "key-missing"),
    (PARAMS, "training:", "seeds: [1]\ntraining:", 11, "unknown-key"),
    (PARAMS, "epochs: 2", "betas: [0.9, 1.5]", 12, "invalid-value"),
    (PARAMS, "2e-5", "2e5", 13, "invalid-value"),
    (PARAMS, "minilm", '"mini\\0lm"', 2, "nul-character"),
    (PARAMS, "minilm", '"mini\\ud800lm"', 2, "bad-escape"),
    (PARAMS, "[opinions]", "[opinion]", 4, "unknown-task"),
    (PARAMS, "- noise", "- nois", 9, "unknown-method"),
    (PARAMS, "[opinions]", "[opinions, opinions]", 4, "listed-twice"),
    (PARAMS, "100, full", "100, full, 100", 5, "listed-twice"),
    (PARAMS, "[0, 1,", "[0, 0, 1,", 6, "listed-twice"),
    (PARAMS, "- mask", "- noise", 10, "listed-twice"),
    (PARAMS, "report: {}", "report: {reference: noize}", 15, "not-listed"),
    (PARAMS, "- vanilla\n  ", "", 14, "not-listed"),
    (PARAMS, "methods:\n  - vanilla\n  - noise  # plain\n  - mask\n", "methods: []\n", 7, "invalid-value"),
    (PARAMS, "methods:\n  - vanilla\n  - noise  # plain\n  - mask\n", "", 0, "key-missing"),
    (PARAMS, "subsample: {}\n", "", 0, "key-missing"),
    (PARAMS, "report: {}\n", "", 0, "key-missing"),
    (PARAMS, "minilm", "minilmm", 2, "revision-missing"),
    (PARAMS, "minilm", "org/encoder", 2, "revision-missing"),
    (PARAMS, "{name: minilm}", "{name: org/encoder, revision: '<commit>'}", 2, "bad-revision"),
    (PARAMS, "minilm", "./absent", 2, "model-missing"),
    (PARAMS, "minilm", "a b", 2, "model-missing"),
    (PARAMS, "{name: minilm}", "{name: minilm, revision: main}", 2, "revision-not-allowed"),
    (PARAMS, "{name: minilm}", "{name: data, revision: main}", 2, "revision-not-allowed"),
    (PARAMS, "minilm", "params.yaml", 2, "not-a-model-directory"),
    (PARAMS, "minilm", "~nobody_here/x", 2, "bad-path"),
    (TASK, "{kind: files}", "{kind: file}", 1, "unknown-choice"),
    (TASK, "{kind: files}", "{}", 1, "key-missing"),
    (TASK, "{kind: files}", "{kind: files, sep: x}", 1, "unknown-key"),
    (TASK, "{kind: files}", "{kind: hub, id: org/set}", 1, "key-missing"),
    (TASK, "{kind: files}", "{kind: hub, id: org/set, revision: 'to do'}", 1, "bad-revision"),
    (TASK, "{kind: files}", "{kind: builtin, generator: cue_sentense}", 1, "invalid-value"),
    (TASK, "{kind: files}", "{kind: builtin, generator: cue_regression}", 1, "generator-kind"),
    (TASK, "{kind: files}", "{kind: builtin, generator: cue_pair, options: {agrement: 1}}", 1, "unknown-key"),
    (TASK, "{kind: files}", "{kind: builtin, generator: cue_pair}", 2, "unknown-split"),
    (TASK, "opinions/train.csv", "opinions/trian.csv", 2, "file-missing"),
    (TASK, "opinions/train.csv", "../secret.csv", 2, "outside-data"),
    (TASK, "opinions/train.csv", "/etc/passwd.csv", 2, "outside-data"),
    (TASK, "opinions/train.csv", "data/../../x.csv", 2, "outside-data"),
    (TASK, "opinions/train.csv", "opinions/train.xls", 2, "unknown-format"),
    (TASK, "train: opinions/train.csv, ", "", 2, "training-split-missing"),
    (TASK, "{kind: files}", "{kind: hub, id: ../data, revision: main}", 1, "invalid-value"),
    (TASK, "{kind: files}", "{kind: hub, id: a/.., revision: main}", 1, "invalid-value"),
    (TASK, "{kind: files}", "{kind: hub, id: ./opinions, revision: main}", 1, "invalid-value"),
    (TASK, "{kind: files}", "{kind: hub, id: data/opinions, revision: main}", 1, "dataset-shadowed"),
    (TASK, "{kind: files}", "{kind: hub, id: glue, revision: main}", 1, "dataset-shadowed"),
    (TASK, "opinions/dev.csv", "opinions/train.csv", 2, "judged-on-training-rows"),
    (TASK, "opinions/dev.csv", "./data//opinions/./train.csv", 2, "judged-on-training-rows"),
    (
        TASK,
        "{kind: files}\nsplits: {train: opinions/train.csv, dev: opinions/dev.csv}",
        "{kind: hub, id: org/set, revision: main}\nsplits: {train: train, dev: train}",
        2,
        "judged-on-training-rows",
    ),
    (TASK, "{text: sentence}", "{text: sentense}", 3, "column-missing"),
    (TASK, "{text: sentence}", "{text: sentence, text_pair: other, label: labels, id: n}", 3, "column-missing"),
    ("data/opinions/dev.csv", "sentence,label", "text,label", 3, "column-missing"),
    ("data/opinions/dev.csv", "sentence,label\nBad,0\n", "", 2, "empty-file"),
    (TASK, "accuracy, f1_macro", "accuracy, f1", 5, "positive-label-missing"),
    (TASK, "f1_macro", "accuracy_f1", 5, "positive-label-missing"),
    (TASK, "{text: sentence}", "{label: label}", 3, "key-missing"),
    (TASK, "[negative, positive]", "[negative]", 4, "inconsistent"),
    (TASK, "[negative, positive]", "[no, 1]", 4, "invalid-value"),
    (TASK, "[negative, positive]", "[a, a]", 4, "inconsistent"),
    (TASK, "primary: accuracy", "primary: acuracy", 6, "inconsistent"),
    (TASK, "primary: accuracy", "primary: accuracy\npositive_label: x", 7, "inconsistent"),
    (TASK, "accuracy, f1_macro", "accuracy, f2", 5, "unknown-metric"),
    (TASK, "accuracy, f1_macro", "accuracy, pearson", 5, "metric-does-not-fit"),
    (TASK, "accuracy, f1_macro", "accuracy, accuracy", 5, "listed-twice"),
    (TASK, "primary: accuracy", "primary: accuracy\nrange: [0, 1]", 7, "bad-range"),
    (TASK, "primary: accuracy", "primary: accuracy\nkeyword_segment: text_pair", 7, "column-not-declared"),
    (TASK, "primary: accuracy", "primary: accuracy\nlabel_values: {'0': negativ}", 7, "unknown-label"),
    (TASK, "primary: accuracy", "primary: accuracy\nlabel_values: {0: negative}", 7, "bad-name"),
    (TASK, "primary: accuracy", "primary: accuracy\nood: {film: {}}", 7, "unknown-task"),
    (TASK, "primary: accuracy", "primary: accuracy\nood: {Films: {}}", 7, "bad-name"),
    (TASK, "primary: accuracy", "primary: accuracy\nood: {dev: {}}", 7, "reserved-name"),
    (TASK, "primary: accuracy", "primary: accuracy\nood: {scores: {}}", 7, "kind-mismatch"),
    (TASK, "primary: accuracy", "primary: accuracy\nood: {films: {labels: [a, b]}}", 7, "in-place-only"),
    (TASK, "primary: accuracy", "primary: accuracy\nood: {films: {split: films/absent.csv}}", 7, "file-missing"),
    (TASK, "primary: accuracy", "primary: accuracy\nood: {own: {source: {kind: files}}}", 7, "split-missing"),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {own: {source: {kind: files}, split: x.csv}}",
        7,
        "file-missing",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {own: {source: {kind: fils}, split: x.csv}}",
        7,
        "unknown-choice",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {own: {source: {kind: files}, split: opinions/dev.csv, labels: [bad, positive]}}",
        7,
        "labels-differ",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {films: {label_map: {negative: negative}}}",
        7,
        "label-unmapped",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {films: {label_map: {negativ: negative, positive: positive, negative: negative}}}",
        7,
        "unknown-label",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {films: {label_map: {negative: negativ, positive: positive}}}",
        7,
        "unknown-label",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {films: {label_map: {negative: positive, positive: positive}}}",
        7,
        "label-unreached",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {own: {source: {kind: files}, split: data/opinions/train.csv}}",
        7,
        "judged-on-training-rows",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {films: {split: opinions/train.csv}}",
        7,
        "judged-on-training-rows",
    ),
    (
        TASK,
        "primary: accuracy",
        "primary: accuracy\nood: {own: {source: {kind: files}, split: opinions/dev.csv, columns: {text: sentense}}}",
        7,
        "column-missing",
    ),
    (NOISE, "noise:", "noize:", 2, "unknown-regulariser"),
    (NOISE, "scale:", "scael:", 2, "unknown-key"),
    (NOISE, "1e-5", "-1e-5", 2, "invalid-value"),
    (NOISE, "{scale: 1e-5}", "", 2, "invalid-value"),
    (NOISE, "\n  noise: {scale: 1e-5}", " noise", 1, "invalid-value"),
    (NOISE, "regularisers:\n  noise", "regularisers:\n- noise", 1, "invalid-value"),
    (NOISE, "training: {}", "training: {epochs: null}", 3, "invalid-value"),
    (NOISE, "training: {}", "training: {learning_rat: 1e-4}", 3, "unknown-key"),
    (NOISE, "training: {}", "training: {epochs: -1}", 3, "invalid-value"),
    (NOISE, "training: {}", "training: {betas: [0.9, 1.5]}", 3, "invalid-value"),
    (NOISE, "training: {}", "training: {steps_factor: 1e9}", 3, "invalid-value"),
    (NOISE, "training: {}", "training: {batch_size: 70000}", 3, "invalid-value"),
    (NOISE, "training: {}", "training: {learning_rate: 3e4}", 3, "invalid-value"),
    (NOISE, "training: {}", "training: {epochs: 9000, steps_factor: 2}", 3, "bad-length"),
    (NOISE, "training: {}", "training: {steps_factor: 0.1}", 3, "bad-length"),
    (NOISE, "training: {}", "training: {}\ncontrol_for: vanila\ndiffers_in: [regularisers]", 4, "unknown-method"),
    (NOISE, "training: {}", "training: {}\ncontrol_for: noise\ndiffers_in: [training]", 4, "refers-to-itself"),
    (NOISE, "training: {}", "training: {}\ncontrol_for: vanilla", 4, "inconsistent"),
    (MASK, "epochs: 2", "epoch: 2", 2, "unknown-key"),
    (MASK, "search: {", "serch: {", 4, "phase-not-before"),
    (MASK, "  finetune:", "  finetun:", 1, "inconsistent"),
    (MASK, "phases:", "training: {}\nphases:", 1, "inconsistent"),
    (MASK, "{training: {epochs: 2}}", "{start: finetune}", 2, "inconsistent"),
    (NOISE, "training: {}", 'training: {}\nsources: {regularisers.noise.scal: "ours: a guess"}', 4, "unknown-source"),
    (
        NOISE,
        "training: {}",
        'training: {}\nsources: {regularisers.noise.scale: "code: a/b train.py"}',
        4,
        "invalid-value",
    ),
    (NOISE, "training: {}", 'training: {}\nsources: {regularisers.noise.scale: "table 1"}', 4, "invalid-value"),
    (NOISE, "training: {}", "training: {}\ntraining: {}", 4, "duplicate-key"),
]


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "code"), MISTAKES, ids=[f"{m[4]}-{m[2][:50]}" for m in MISTAKES]
)
def test_each_mistake_is_told_with_its_place(
    files: dict[str, str], failures: Any, file: str, old: str, new: str, line: int, code: str
) -> None:
    problems = failures({file: edit(files[file], old, new)})
    told = TASK if file.startswith("data/") else file  # where the file of rows is named
    assert (told, line, code) in [(problem.file, problem.line, problem.code) for problem in problems]
    assert not any("pydantic" in str(problem) for problem in problems)


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
        TASK,
        """\
source: {kind: builtin, generator: cue_pair, options: {agreement: 2, rows: {train: 50}}}
splits: {train: train, dev: train}
columns: {text: sentence, label: label}
labels: [same, different]
metrics: [accuracy, f1, f2]
primary: accuracy
drop_empty: true
""",
        [
            (1, "invalid-value"),
            (2, "judged-on-training-rows"),
            (3, "column-missing"),
            (4, "generator-labels"),
            (5, "positive-label-missing"),
            (5, "unknown-metric"),
            (7, "key-without-effect"),
        ],
    ),
    (
        PARAMS,
        """\
model: {name: ./absent, max_length: 4}
grid:
  tasks: [opinions]
  sizes: [1, full]
  seeds: [0, -1]
methods: [vanilla, Noise]
training: {epochs: -1, precision: fp31}
store: {budget_gb: 0}
subsample: {}
""",
        [
            (1, "invalid-value"),
            (4, "invalid-value"),
            (5, "invalid-value"),
            (6, "invalid-value"),
            (7, "invalid-value"),
            (7, "invalid-value"),
            (8, "invalid-value"),
            (0, "key-missing"),
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


@pytest.mark.parametrize(("file", "content", "told"), SEVERAL, ids=["fields", "generated", "params", "method"])
def test_all_mistakes_of_a_file_are_told_at_once(
    failures: Any, file: str, content: str, told: list[tuple[int, str]]
) -> None:
    problems = failures({file: content})
    assert {problem.file for problem in problems} == {file}
    assert sorted((problem.line, problem.code) for problem in problems) == sorted(told)


def test_mistakes_of_several_files_come_together(failures: Any) -> None:
    problems = failures({TASK: "a: 1\n", NOISE: "b: 1\n", MASK: "c: 1\n"})
    assert {problem.file for problem in problems} == {TASK, NOISE, MASK}


def test_thousands_of_unknown_keys_are_counted(failures: Any, files: dict[str, str]) -> None:
    """They took 15 seconds, each compared with every name."""
    problems = failures({PARAMS: files[PARAMS] + "".join(f"k{i}: 1\n" for i in range(15_000))})
    assert len(problems) == 51
    assert problems[-1].code == "more-mistakes"


#: Values of every kind, none of which a field may answer with a traceback.
ODD: list[Any] = [None, "greedyy", [[1]]]


def _places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in items for place in [(*at, key), *_places(value, (*at, key))]]


#: Every key of the schema, with a right value.
FULL = {
    PARAMS: """
      {"tuning": {"selection": "split", "split": 0.8, "per": "seed", "trials": 2,
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
         "start": "checkpoint",
         "regularisers": {"noise": {"scale": 0.1}}, "training": {"steps_factor": {"match": "vanilla"}}},
        "finetune": {"regularisers": {"mask": {}}, "training": {"steps_factor": 2}}},
       "controls": {"none": {"why": "a", "regularisers": {"noise": null}}}, "variant_of": "vanilla",
         "combines": ["noise"],
       "control_for": "vanilla", "differs_in": ["phases"], "model": {"pooling": "mean"},
       "sources": {"phases.search": "ours: a"}}""",
}


@pytest.mark.parametrize("file", FULL)
def test_no_wrong_value_is_a_traceback(
    build: Any, registry: dict[str, Any], files: dict[str, str], tmp_path: Any, file: str
) -> None:
    """Every field with a value of every kind: valid, or problems with codes."""
    root = build({})
    whole = {**YAML(typ="safe").load(files[file]), **json.loads(FULL[file])}
    for place in _places(whole):
        for value in ODD:
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

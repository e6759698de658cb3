"""One mistake hides no other: a file with several independent mistakes is told all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.data.builtin import SPLITS, BuiltinOptions
from regft_core.errors import ConfigError
from regft_core.schema.params import Params
from regft_core.schema.tasks import FilesSource, TaskConfig
from regft_core.settings.checks.builtin_tasks import Builtin
from regft_core.settings.read_project import load_project
from regft_core.settings.yaml.valid_parts import parts
from tests.settings.test_mistakes import MASK, NOISE, PARAMS, TASK

#: (file, content, what each mistake's problem begins with): nothing more and nothing less may be said.
SEVERAL: list[tuple[str, str, list[str]]] = [
    (
        TASK,
        """\
source: {kind: files}
splits: {train: opinions/train.csv, dev: opinions/trian.csv}
columns: {text: sentense}
labels: [negative, 1]
metrics: [accuracy, f2]
primary: acuracy
colour: red
ood:
  films: {split: opinions/train.csv, label_map: 7}
  own: {source: {kind: fils}, split: x.csv}
  Third: {}
  fourth: {source: {kind: files}, split: absent.csv}
""",
        [
            "colour: unknown key",
            "columns.text: no column 'sentense' in data/opinions/train.csv",
            "labels[1]: is 1 (a whole number)",
            "metrics[1]: unknown metric 'f2'",
            "ood.Third: the key Third is not a valid name",
            "ood.films.label_map: is 7",
            "ood.films.split: this set ('opinions/train.csv') is the training split",
            "ood.fourth.split: there is no file data/absent.csv",
            "ood.own.source.kind: unknown kind 'fils'",
            "primary: primary 'acuracy' is not one of metrics",
            "splits.dev: there is no file data/opinions/trian.csv",
        ],
    ),
    (
        TASK,
        """\
source: {kind: files, sep: x}
splits: {train: 5, dev: opinions/absent.csv}
columns: {text: sentence}
labels: [negative, negative]
metrics: [pearson]
primary: pearson
keyword_segment: text_pair
""",
        [
            "keyword_segment: is text_pair, but columns.text_pair is missing",
            "labels: 'labels' names a label twice",
            "metrics[0]: 'pearson' does not fit kind: classification",
            "source.sep: unknown key 'sep'",
            "splits.dev: there is no file data/opinions/absent.csv",
            "splits.train: is 5 (a whole number)",
        ],
    ),
    (
        TASK,
        """\
source: {kind: builtin, generator: cue_pair, options: {agreement: 2, rows: {train: 50}}}
splits: {train: train, dev: train}
columns: {text: sentence, label: label}
labels: [same, different]
metrics: [accuracy, f1]
primary: accuracy
drop_empty: yes
""",
        [
            "columns.text: the rows of 'cue_pair' have no text 'sentence'",
            "drop_empty: is 'yes' (text)",
            "labels: 'cue_pair' has the labels different, same, in this order",
            "metrics[1]: 'positive_label' is missing",
            "source.options.agreement: is 2",
            "splits.dev: the development set ('train') is the training split",
        ],
    ),
    (
        PARAMS,
        """\
model: {name: ./absent, max_length: 4}
grid:
  tasks: [opinions, opinions]
  sizes: [1, full, full]
  seeds: [0, 0, -1]
methods: [vanilla, vanilla, nois]
training: {epochs: 0, precision: fp31}
store: {path: work/runs, budget_gb: 0}
subsample: {}
report: {reference: noise}
""",
        [
            "grid.seeds[1]: 0 is listed twice",
            "grid.seeds[2]: is -1",
            "grid.sizes[0]: is 1",
            "grid.sizes[2]: full is listed twice",
            "grid.tasks[1]: opinions is listed twice",
            "methods[1]: vanilla is listed twice",
            "methods[2]: unknown method 'nois'",
            "model.max_length: is 4",
            "model.name: there is no directory './absent'",
            "report.reference: 'noise' is not a listed method",
            "store.budget_gb: is 0",
            "store.path: 'work/runs' lies in work/",
            "training.epochs: is 0",
            "training.precision: is 'fp31'",
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
variant_of: [vanilla, noise]
differs_by: 3
search: {}
""",
        [
            "control_for: control_for needs 'differs_in'",
            "control_for: unknown method 'vanila'",
            "differs_by: is written by regft",
            "regularisers.mask.probability: is 2",
            "regularisers.noise.scael: unknown key 'scael'",
            "regularisers.noise.shape: is 'square'",
            "regularisers.noize: unknown regulariser 'noize'",
            "search: unknown key 'search'",
            "training.betas[1]: is 1.5",
            "training.clip: unknown key 'clip'",
            "training.epochs: is -1",
            "training.steps_factor.mach: unknown key 'mach'",
            "training.steps_factor.match: 'match' is missing",
            "variant_of[1]: a method cannot be a variant of itself",
        ],
    ),
    (
        MASK,
        """\
phases:
  search: {start: later, training: {epoch: 2}, data: 7}
  tune: {regularisers: {mask: {taken: 1}}, repeat: {times: 0}, training: {epochs: null}}
  later: 3
training: {batch_size: 0}
control_for: noise
""",
        [
            "control_for: control_for needs 'differs_in'",
            "phases.later: is 3",
            "phases.search.data: is 7",
            "phases.search.start: 'search' starts from 'later', which is not an earlier phase",
            "phases.search.training.epoch: unknown key 'epoch'",
            "phases.tune.regularisers.mask.taken: is 1",
            "phases.tune.repeat.times: is 0",
            "phases.tune.training.epochs: is null; give a value or leave the key out",
            "phases: phases must end with the phase 'finetune', the last is 'later'",
            "training.batch_size: is 0",
            "training: training stands beside phases",
        ],
    ),
    (
        MASK,
        """\
phases:
  search: {data: {task: opinion, size: 1}, training: {steps_factor: {match: noize}}}
  other: {data: {task: scores}, regularisers: {mask: {}, split: {}}}
  third: {data: {task: films, split: 7}, regularisers: {mask: {probability: 0.1}}, start: other}
  finetune: {training: {steps_factor: {match: mask}, epoch: 1}}
colour: red
""",
        [
            "colour: unknown key 'colour'",
            "phases.finetune.training.epoch: unknown key 'epoch'",
            "phases.finetune.training.steps_factor.match: a method cannot match its own compute",
            "phases.search.data.size: is 1",
            "phases.search.data.task: unknown task 'opinion'",
            "phases.search.training.steps_factor.match: unknown method 'noize'",
            "phases.third.data.split: is 7",
        ],
    ),
    (
        MASK,
        """\
phases:
  early: {regularisers: {mask: {}}}
  search: {data: {task: scores, size: 1}}
  finetune: {regularisers: {mask: {probability: 0.1}}}
""",
        [
            "phases.early.regularisers.mask: 'mask' takes something from the phase 'search', which does not run before",
            "phases.search.data.size: is 1",
        ],
    ),
]


@pytest.mark.parametrize(("file", "content", "wanted"), SEVERAL, ids=[f"{s[0]}-{len(s[2])}" for s in SEVERAL])
def test_every_mistake_of_a_file_is_named_at_once(
    failures: Any, files: dict[str, str], file: str, content: str, wanted: list[str]
) -> None:
    found = failures({file: content})
    texts = sorted(f"{problem.key}: {problem.message}" for problem in found if problem.file == file)
    assert len(texts) == len(wanted), "\n".join(texts)
    for text, beginning in zip(texts, wanted):
        assert text.startswith(beginning), "\n".join(texts)
    assert all(problem.line for problem in found if problem.file == file)


def test_a_wrong_grid_hides_neither_the_model_nor_the_tasks(build: Any, registry: dict[str, Any]) -> None:
    params = """\
model: {name: org/encoder}
grid: {tasks: [opinions], sizes: 100, sede: [0]}
methods: [vanilla]
training: {}
subsample: {}
report: {confidence: 2}
"""
    task = "source: {kind: files}\nsplits: {dev: x.csv}\nlabels: [a]\nmetrics: []\nprimary: x\n"
    root = build({PARAMS: params, TASK: task})
    with pytest.raises(ConfigError) as caught:
        load_project(root, registry, builtin=Builtin(BuiltinOptions, SPLITS))
    assert {(Path(p.file).name, p.key) for p in caught.value.problems} == {
        ("params.yaml", "model.name"),
        ("params.yaml", "grid.sizes"),
        ("params.yaml", "grid.sede"),
        ("params.yaml", "grid.seeds"),
        ("params.yaml", "report.confidence"),
        ("opinions.yaml", "columns"),
        ("opinions.yaml", "labels"),
        ("opinions.yaml", "metrics"),
        ("opinions.yaml", "splits"),
        ("opinions.yaml", "splits.dev"),
    }


def test_mistakes_of_many_sections_and_files_come_together(build: Any, registry: dict[str, Any]) -> None:
    """One of each section of ``params.yaml``, of a task and of two methods."""
    params = """\
model: {name: minilm, poling: mean}
grid: {tasks: [opinions, opinion], sizes: [100, ful], seeds: [0, 0]}
methods: [vanilla, noise, mask, vanila]
training: {epochs: 2, batchsize: 8}
subsample: {stratifed: true}
evaluations: [calibratoin]
execution: {workers: 0}
store: {budget: 3}
report: {confidence: 1}
"""
    changed = {
        PARAMS: params,
        TASK: "source: {kind: files}\nsplits: {train: opinions/train.csv, dev: opinions/dev.cvs}\n"
        "columns: {text: sentense}\nlabels: [negative, positive]\nmetrics: [accuracy]\nprimary: accuracy\n"
        "ood:\n  run: {}\n",
        NOISE: "regularisers:\n  noise: {scael: 1}\ncontrol_for: vanila\n",
        MASK: "phases:\n  search: {data: {task: opinion}}\n  finetune: {regularisers: {mask: {}}}\n",
    }
    with pytest.raises(ConfigError) as caught:
        load_project(
            build(changed),
            registry,
            compose_check=lambda method, *_: ["clashes"] if method.name == "mask" else [],
            builtin=Builtin(BuiltinOptions, SPLITS),
        )
    assert {(Path(p.file).name, p.key) for p in caught.value.problems} == {
        *(("params.yaml", key) for key in ("model.poling", "grid.tasks[1]", "grid.sizes[1]", "grid.seeds[1]")),
        *(("params.yaml", key) for key in ("methods[3]", "training.batchsize", "subsample.stratifed")),
        *(("params.yaml", key) for key in ("evaluations[0]", "execution.workers", "store.budget", "report.confidence")),
        *(("opinions.yaml", key) for key in ("splits.dev", "columns.text", "ood.run")),
        *(("noise.yaml", key) for key in ("regularisers.noise.scael", "control_for")),
        *(("mask.yaml", key) for key in ("phases.search.data.task", "phases")),
    }
    assert all(problem.line for problem in caught.value.problems)


def test_parts_hold_what_is_right_and_nothing_in_place_of_what_is_wrong() -> None:
    task = parts(
        TaskConfig,
        {
            "kind": "clasification",
            "source": {"kind": "files"},
            "splits": {"train": 1, "dev": "a.csv", "test": "b.csv"},
            "labels": ["a", 1],
            "label_values": {"0": "a", "1": 1},
            "ood": {"x": {"split": 7, "label_map": {"a": "b"}}, "Y": {}, "z": {}},
        },
    )
    assert task.source == FilesSource(kind="files")
    assert not task.known("kind")  # the default would be what the user did not mean
    assert not task.known("columns")
    assert not task.known("labels")
    assert task.splits.known("dev")
    assert not task.splits.known("train")
    assert task.label_values == {"0": "a"}
    assert list(task.ood) == ["x", "z"]
    assert task.ood["x"].label_map == {"a": "b"}
    assert not task.ood["x"].known("split")
    assert task.description == ""  # not given: the default is right
    assert not parts(Params, {"grid": [1]}).known("grid")
    assert not parts(Params, None).known("model")


def test_null_is_offered_only_where_it_is_allowed(failures: Any, files: dict[str, str]) -> None:
    for key, null in {"batch_size": False, "steps_factor": False, "max_steps": True, "clip_norm": True}.items():
        text = files[NOISE].replace("training: {}", f"training: {{{key}: 0}}")
        (problem,) = failures({NOISE: text})
        assert problem.message.endswith(" or null") == null, problem

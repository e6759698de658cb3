from __future__ import annotations

from typing import Any

import pytest

PARAMS, TASK = "params.yaml", "pipelines/tasks/opinions.yaml"
NOISE, MASK = "pipelines/methods/noise.yaml", "pipelines/methods/mask.yaml"
#: The last line of TASK, to add keys below it.
LAST = "primary: accuracy"
FILES, MODEL, T = "{kind: files}", "{name: minilm}", "training: {}"


def edit(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


#: (file, text to replace, replacement, what the message holds). Line numbers are part of it.
BROKEN: list[tuple[str, str, str, tuple[str, ...]]] = [
    # ---------------------------------------------------------------- params.yaml: values
    (
        PARAMS,
        "100, full",
        "'300', full",
        (
            "params.yaml:5: grid.sizes[0]:",
            "'300' (text)",
            "at least 2 and at most 1000000000 or 'full'",
            "remove the quotes",
        ),
    ),
    (PARAMS, "100, full", "1", ("params.yaml:5: grid.sizes[0]:", "1 (a whole number)", "at least 2")),
    (PARAMS, "100, full", "ful", ("params.yaml:5: grid.sizes[0]:", "'ful' (text)", "'full'")),
    (PARAMS, "100, full", "true", ("params.yaml:5: grid.sizes[0]:", "true (true/false)")),
    (PARAMS, "100, full", "10.0", ("params.yaml:5: grid.sizes[0]:", "10.0 (a number)", "a whole number")),
    (PARAMS, "[100, full]", "[]", ("params.yaml:5: grid.sizes:", "a list of 0", "a list of at least 1")),
    (PARAMS, "[100, full]", "100", ("params.yaml:5: grid.sizes:", "100 (a whole number)", "a list", "value: [100]")),
    (PARAMS, "[opinions]", "opinions", ("params.yaml:4: grid.tasks:", "'opinions' (text)", "in brackets: [opinions]")),
    (PARAMS, "- noise", "- Noise", ("params.yaml:9: methods[1]:", "'Noise' (text)", "write noise")),
    (
        PARAMS,
        "- noise",
        "- split",
        ("params.yaml:9: methods[1]:", "unknown method 'split'", "{split: {}}"),
    ),
    (
        TASK,
        "accuracy, f1_macro]",
        "macro_f1, accuracy]",
        (TASK, "'macro_f1'", "did you mean 'f1_macro'?"),
    ),
    (PARAMS, "seeds: [0,", "seeds: [-1,", ("params.yaml:6: grid.seeds[0]:", "-1", "at least 0")),
    (PARAMS, "[opinions]", "[../etc]", ("params.yaml:4: grid.tasks[0]:", "'../etc'", "a-z, 0-9, _ and -")),
    (PARAMS, "[opinions]", f"[{'t' * 300}]", ("params.yaml:4: grid.tasks[0]:", "at most 64 characters")),
    (PARAMS, "- noise", f"- {'m' * 300}", ("params.yaml:9: methods[1]:", "at most 64 characters")),
    (NOISE, T, f"control_for: {'m' * 65}\n{T}", ("noise.yaml:3: control_for:", "at most 64 characters")),
    (
        PARAMS,
        "epochs: 2",
        "epochs: two",
        ("params.yaml:12: training.epochs:", "'two' (text)", "a whole number, at least 1"),
    ),
    (PARAMS, "2e-5", "'2e-5'", ("params.yaml:13: training.learning_rate:", "a number, above 0", "remove the quotes")),
    (PARAMS, "2e-5", ".inf", ("params.yaml:13: training.learning_rate:", "inf")),
    (PARAMS, "2e-5", ".nan", ("params.yaml:13: training.learning_rate:", "nan")),
    (PARAMS, "epochs: 2", "precision: bf17", ("params.yaml:12: training.precision:", "one of 'fp32', 'bf16', 'fp16'")),
    (
        PARAMS,
        "epochs: 2",
        "dropout: {hidden: 1.5}",
        ("params.yaml:12: training.dropout.hidden:", "'keep' or a number, at least 0 and below 1"),
    ),
    (PARAMS, "epochs: 2", "betas: [0.9]", ("params.yaml:12: training.betas:", "a list of exactly 2")),
    (
        PARAMS,
        "epochs: 2",
        "allow_precision_loss: yes",
        ("params.yaml:12:", "'yes' (text)", "true or false", "YAML 1.2 knows only"),
    ),
    (PARAMS, "model: {name: minilm}", "model: {}", ("params.yaml:2: model.name: 'name' is missing", "give text")),
    (
        PARAMS,
        "model: {name: minilm}",
        "model: minilm",
        ("params.yaml:2: model:", "'minilm' (text)", "a mapping with the keys name"),
    ),
    (PARAMS, "training:\n  epochs: 2\n  learning_rate: 2e-5\n", "", ("params.yaml: training: 'training' is missing",)),
    (
        PARAMS,
        "training:",
        "trainings:",
        ("params.yaml:11: trainings: unknown key 'trainings'", "did you mean 'training'?"),
    ),
    (
        PARAMS,
        "training:",
        "trainings:",
        ("params.yaml: training: 'training' is missing", "'trainings' may be a misspelling"),
    ),
    (PARAMS, "training:", "seeds: [1]\ntraining:", ("params.yaml:11: seeds: unknown key", "it belongs under 'grid'")),
    (PARAMS, "epochs: 2", "betas: [0.9, 1.5]", ("params.yaml:12: training.betas[1]:", "at least 0 and below 1")),
    (PARAMS, "2e-5", "2e5", ("params.yaml:13: training.learning_rate:", "200000.0", "at most 1")),
    (PARAMS, "[opinions]", f"[{'a' * 300}]", ("params.yaml:4: grid.tasks[0]:", "at most 64 characters")),
    (PARAMS, "minilm", r'"mini\0lm"', ("params.yaml:2:", "NUL character")),
    (PARAMS, "minilm", r'"mini\ud800lm"', ("params.yaml:2:", "surrogate pair")),
    (PARAMS, "seeds: [0,", "seeds: [0x" + "f" * 5000 + ",", ("params.yaml:6:", "looks like a number")),
    # ------------------------------------------------------------ params.yaml: names that agree
    (
        PARAMS,
        "[opinions]",
        "[opinion]",
        ("params.yaml:4: grid.tasks[0]: unknown task 'opinion'", "did you mean 'opinions'?", "films"),
    ),
    (
        PARAMS,
        "- noise",
        "- nois",
        (
            "params.yaml:9: methods[1]: unknown method 'nois'",
            "did you mean 'noise'?",
            "mask, noise, vanilla",
        ),
    ),
    (PARAMS, "[opinions]", "[opinions, opinions]", ("params.yaml:4: grid.tasks[1]: opinions is listed twice",)),
    (PARAMS, "100, full", "100, full, 100", ("params.yaml:5: grid.sizes[2]: 100 is listed twice",)),
    (PARAMS, "[0, 1,", "[0, 0, 1,", ("params.yaml:6: grid.seeds[1]: 0 is listed twice",)),
    (PARAMS, "- mask", "- noise", ("params.yaml:10: methods[2]: noise is listed twice",)),
    (
        PARAMS,
        "report: {}",
        "report: {reference: noize}",
        ("params.yaml:15: report.reference:", "'noize' is not a listed method", "did you mean 'noise'?"),
    ),
    (PARAMS, "- vanilla\n  ", "", ("params.yaml:14: report.reference:", "'vanilla' is not a listed method")),
    (
        PARAMS,
        "methods:\n  - vanilla\n  - noise  # plain\n  - mask\n",
        "methods: []\n",
        ("params.yaml:7: methods: is a list of 0", "a list of at least 1"),
    ),
    # DVC reads the list of methods and these sections: it would stop at a missing one with less to say.
    (
        PARAMS,
        "methods:\n  - vanilla\n  - noise  # plain\n  - mask\n",
        "",
        ("params.yaml: methods: 'methods' is missing",),
    ),
    (PARAMS, "subsample: {}\n", "", ("params.yaml", "'subsample' is missing")),
    (
        PARAMS,
        "report: {}\n",
        "",
        ("params.yaml", "'report' is missing"),
    ),
    # ---------------------------------------------------------------------- params.yaml: model
    (PARAMS, "minilm", "minilmm", ("params.yaml:2: model.name:", "needs a revision", "did you mean 'minilm'?")),
    (PARAMS, "minilm", "org/encoder", ("params.yaml:2: model.name:", "needs a revision", "40 hex digits")),
    (
        PARAMS,
        MODEL,
        "{name: org/encoder, revision: '<commit>'}",
        ("params.yaml:2: model.revision:", "not a commit, tag or branch"),
    ),
    (PARAMS, "minilm", "./absent", ("params.yaml:2: model.name: there is no directory './absent'",)),
    (PARAMS, "minilm", "a b", ("params.yaml:2: model.name:", "cannot be a hub id")),
    (
        PARAMS,
        MODEL,
        "{name: minilm, revision: main}",
        ("params.yaml:2: model.revision:", "no revision", "remove the key"),
    ),
    (PARAMS, MODEL, "{name: data, revision: main}", ("params.yaml:2: model.revision: 'data' is a local directory",)),
    (PARAMS, "minilm", "params.yaml", ("params.yaml:2: model.name: 'params.yaml' is a file, not a model directory",)),
    (PARAMS, "minilm", "~nobody_here/x", ("params.yaml:2: model.name: '~nobody_here' is no known home directory",)),
    (PARAMS, "minilm", "a" * 300, ("params.yaml:2: model.name:", "unreadable (File name too long)")),
    # ------------------------------------------------------------------------------- tasks
    (
        TASK,
        FILES,
        "{kind: file}",
        ("opinions.yaml:1: source.kind: unknown kind 'file'", "did you mean 'files'?", "builtin, files, hub"),
    ),
    (TASK, FILES, "{}", ("opinions.yaml:1: source.kind: 'kind' is missing", "builtin, files, hub")),
    (TASK, FILES, "{kind: files, sep: x}", ("opinions.yaml:1: source.sep: unknown key 'sep'",)),
    (TASK, FILES, "{kind: hub, id: org/set}", ("opinions.yaml:1: source.revision: 'revision' is missing",)),
    (TASK, FILES, "{kind: hub, id: org/set, revision: 'to do'}", ("opinions.yaml:1: source.revision:", "not a commit")),
    (TASK, FILES, "{kind: builtin, generator: cue_sentense}", ("opinions.yaml:1: source.generator:", "cue_sentence")),
    (
        TASK,
        FILES,
        "{kind: builtin, generator: cue_regression}",
        ("opinions.yaml:1: source.generator:", "makes a regression task"),
    ),
    (
        TASK,
        FILES,
        "{kind: builtin, generator: cue_pair, options: {agrement: 1}}",
        ("opinions.yaml:1: source.options.agrement:", "did you mean 'agreement'?"),
    ),
    (
        TASK,
        FILES,
        "{kind: builtin, generator: cue_pair}",
        ("opinions.yaml:2: splits.train: unknown split 'opinions/train.csv'", "train, dev, no_cue, reversed"),
    ),
    (
        TASK,
        "opinions/train.csv",
        "opinions/trian.csv",
        (
            "opinions.yaml:2: splits.train: there is no file data/opinions/trian.csv",
            "did you mean 'opinions/train.csv'?",
        ),
    ),
    (TASK, "opinions/train.csv", "../secret.csv", ("opinions.yaml:2: splits.train: '../secret.csv' leaves data/",)),
    (
        TASK,
        "opinions/train.csv",
        "/etc/passwd.csv",
        ("opinions.yaml:2: splits.train: '/etc/passwd.csv' is not a path below data/",),
    ),
    (TASK, "opinions/train.csv", "data/../../x.csv", ("opinions.yaml:2: splits.train:", "leaves data/")),
    (TASK, "opinions/train.csv", "opinions/train.xls", ("opinions.yaml:2: splits.train:", "unknown format", ".csv")),
    (
        TASK,
        "train: opinions/train.csv, ",
        "",
        ("opinions.yaml:2: splits: 'train' is missing", "take the task out of grid.tasks"),
    ),
    (
        TASK,
        FILES,
        "{kind: hub, id: ../data, revision: main}",
        ("opinions.yaml:1: source.id:", "like 'owner/name'"),
    ),
    (TASK, FILES, "{kind: hub, id: a/.., revision: main}", ("opinions.yaml:1: source.id:", "like 'owner/name'")),
    (TASK, FILES, "{kind: hub, id: ./opinions, revision: main}", ("opinions.yaml:1: source.id:",)),
    (
        TASK,
        FILES,
        "{kind: hub, id: data/opinions, revision: main}",
        ("opinions.yaml:1: source.id: the project has a folder or file 'data/opinions'", "rename or move"),
    ),
    (TASK, FILES, "{kind: hub, id: glue, revision: main}", ("opinions.yaml:1: source.id: 'glue' names no owner",)),
    (
        TASK,
        "opinions/dev.csv",
        "opinions/train.csv",
        ("opinions.yaml:2: splits.dev: the development set ('opinions/train.csv') is the training split",),
    ),
    (
        TASK,
        "opinions/dev.csv",
        "./data//opinions/./train.csv",
        ("opinions.yaml:2: splits.dev: the development set", "is the training split"),
    ),
    (
        TASK,
        f"{FILES}\nsplits: {{train: opinions/train.csv, dev: opinions/dev.csv}}",
        "{kind: hub, id: org/set, revision: main}\nsplits: {train: train, dev: train}",
        ("opinions.yaml:2: splits.dev: the development set ('train') is the training split",),
    ),
    (
        TASK,
        "{text: sentence}",
        "{text: sentense}",
        (
            "opinions.yaml:3: columns.text: no column 'sentense' in data/opinions/train.csv, data/opinions/dev.csv",
            "did you mean 'sentence'? its columns: sentence, label",
        ),
    ),
    (
        TASK,
        "{text: sentence}",
        "{text: sentence, text_pair: other, label: labels, id: n}",
        ("opinions.yaml:3: columns.label: no column 'labels'", "did you mean 'label'?"),
    ),
    ("data/opinions/dev.csv", "sentence,label", "text,label", ("opinions.yaml:3: columns.text: no column 'sentence'",)),
    ("data/opinions/dev.csv", "sentence,label\nBad,0\n", "", ("opinions.yaml:2: splits.dev:", "is empty")),
    (
        TASK,
        "accuracy, f1_macro",
        "accuracy, f1",
        ("opinions.yaml:5: metrics[1]: 'positive_label' is missing: f1", "one of the labels: negative, positive"),
    ),
    (TASK, "f1_macro", "accuracy_f1", ("opinions.yaml:5: metrics[1]: 'positive_label' is missing: accuracy_f1",)),
    (TASK, "{text: sentence}", "{label: label}", ("opinions.yaml:3: columns.text: 'text' is missing",)),
    (TASK, "[negative, positive]", "[negative]", ("opinions.yaml:4: labels:", "at least two names")),
    (
        TASK,
        "[negative, positive]",
        "[no, 1]",
        ("opinions.yaml:4: labels[1]: is 1 (a whole number); allowed: text", "put quotes around it"),
    ),
    (TASK, "[negative, positive]", "[a, a]", ("opinions.yaml:4: labels:", "a label twice")),
    (
        TASK,
        "primary: accuracy",
        "primary: acuracy",
        ("opinions.yaml:6: primary:", "primary 'acuracy' is not one of metrics"),
    ),
    (TASK, LAST, LAST + "\npositive_label: x", ("opinions.yaml:7: positive_label:", "'x' is not one of labels")),
    (
        TASK,
        "accuracy, f1_macro",
        "accuracy, f2",
        ("opinions.yaml:5: metrics[1]: unknown metric 'f2'", "allowed for classification", "matthews"),
    ),
    (
        TASK,
        "accuracy, f1_macro",
        "accuracy, pearson",
        ("opinions.yaml:5: metrics[1]: 'pearson' does not fit kind: classification", "accuracy, accuracy_f1"),
    ),
    (TASK, "accuracy, f1_macro", "accuracy, accuracy", ("opinions.yaml:5: metrics[1]: 'accuracy' is listed twice",)),
    (TASK, LAST, LAST + "\nrange: [0, 1]", ("opinions.yaml:7: range: a classification task has no range",)),
    (
        TASK,
        LAST,
        LAST + "\nkeyword_segment: text_pair",
        ("opinions.yaml:7: keyword_segment:", "columns.text_pair is missing"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nlabel_values: {'0': negativ}",
        ("opinions.yaml:7: label_values.0: 'negativ' is not one of labels", "did you mean 'negative'?"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nlabel_values: {0: negative}",
        ("opinions.yaml:7: label_values[0]: the key 0 is not text", "'0'"),
    ),
    # ------------------------------------------------------------------------------- OOD
    (
        TASK,
        LAST,
        LAST + "\nood: {film: {}}",
        ("opinions.yaml:7: ood.film: unknown task 'film'", "did you mean 'films'?"),
    ),
    (TASK, LAST, LAST + "\nood: {Films: {}}", ("opinions.yaml:7: ood.Films:", "a-z, 0-9, _ and -")),
    (TASK, LAST, LAST + "\nood: {dev: {}}", ("opinions.yaml:7: ood.dev:", "task's own set")),
    (
        TASK,
        LAST,
        LAST + "\nood: {scores: {}}",
        ("opinions.yaml:7: ood.scores: a classification task cannot be judged on a regression set",),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {labels: [a, b]}}",
        ("opinions.yaml:7: ood.films.labels:", "say it in pipelines/tasks/films.yaml"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {split: films/absent.csv}}",
        ("opinions.yaml:7: ood.films.split: there is no file data/films/absent.csv",),
    ),
    (TASK, LAST, LAST + "\nood: {own: {source: {kind: files}}}", ("opinions.yaml:7: ood.own: 'split' is missing",)),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: x.csv}}",
        ("opinions.yaml:7: ood.own.split: there is no file data/x.csv",),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: fils}, split: x.csv}}",
        ("opinions.yaml:7: ood.own.source.kind:", "did you mean 'files'?"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: opinions/dev.csv, labels: [bad, positive]}}",
        ("opinions.yaml:7: ood.own: label names differ (only this task: negative; only the set: bad)", "label_map"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negative: negative}}}",
        ("opinions.yaml:7: ood.films.label_map: no entry for positive",),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negativ: negative, positive: positive, negative: negative}}}",
        ("ood.films.label_map.negativ: 'negativ' is not a label of this task", "did you mean 'negative'?"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negative: negativ, positive: positive}}}",
        ("ood.films.label_map.negative: 'negativ' is not a label of the set", "did you mean 'negative'?"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negative: positive, positive: positive}}}",
        ("ood.films.label_map: nothing becomes the set's negative",),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: data/opinions/train.csv}}",
        ("opinions.yaml:7: ood.own.split: this set ('data/opinions/train.csv') is the training split",),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {split: opinions/train.csv}}",
        ("opinions.yaml:7: ood.films.split: this set ('opinions/train.csv') is the training split",),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: opinions/dev.csv, columns: {text: sentense}}}",
        ("opinions.yaml:7: ood.own.columns.text: no column 'sentense'", "did you mean 'sentence'?"),
    ),
    # ------------------------------------------------------------------------------- methods
    (
        NOISE,
        "noise:",
        "noize:",
        (
            "noise.yaml:2: regularisers.noize: unknown regulariser 'noize'",
            "did you mean 'noise'?",
            "mask, noise, split",
        ),
    ),
    (
        NOISE,
        "scale:",
        "scael:",
        (
            "noise.yaml:2: regularisers.noise.scael: unknown key 'scael'",
            "did you mean 'scale'? allowed here: scale, shape",
        ),
    ),
    (NOISE, "1e-5", "-1e-5", ("noise.yaml:2: regularisers.noise.scale:", "-1e-05 (a number)", "at least 0")),
    (NOISE, "{scale: 1e-5}", "", ("noise.yaml:2: regularisers.noise:", "nothing (null)", "write {}")),
    (NOISE, "\n  noise: {scale: 1e-5}", " noise", ("noise.yaml:1: regularisers:", "'noise' (text)", "'noise: {}'")),
    (NOISE, "regularisers:\n  noise", "regularisers:\n- noise", ("noise.yaml:1: regularisers:", "is a list of 1")),
    (NOISE, "training: {}", "training: {epochs: null}", ("noise.yaml:3: training.epochs: is null",)),
    (
        NOISE,
        "training: {}",
        "training: {learning_rat: 1e-4}",
        ("noise.yaml:3: training.learning_rat:", "did you mean 'learning_rate'?"),
    ),
    (NOISE, T, "training: {epochs: -1}", ("noise.yaml:3: training.epochs:", "at least 0 and at most 10000")),
    (NOISE, T, "training: {betas: [0.9, 1.5]}", ("noise.yaml:3: training.betas[1]:", "at least 0 and below 1")),
    (NOISE, T, "training: {steps_factor: 1e9}", ("noise.yaml:3: training.steps_factor:", "at most 1000")),
    (NOISE, T, "training: {batch_size: 70000}", ("noise.yaml:3: training.batch_size:", "at most 65536")),
    (NOISE, T, "training: {learning_rate: 3e4}", ("noise.yaml:3: training.learning_rate:", "at most 1")),
    (
        NOISE,
        T,
        "training: {epochs: 9000, steps_factor: 2}",
        ("noise.yaml:3: training.steps_factor: steps_factor 2 of epochs 9000 makes epochs 18000", "1 to 10000"),
    ),
    (
        NOISE,
        T,
        "training: {steps_factor: 0.1}",
        ("noise.yaml:3: training.steps_factor: steps_factor 0.1 of epochs 2 makes epochs 0", "1 to 10000"),
    ),
    (
        NOISE,
        T,
        T + "\ncontrol_for: vanila\ndiffers_by: noise",
        ("noise.yaml:4: control_for: unknown method 'vanila'", "did you mean 'vanilla'?"),
    ),
    (
        NOISE,
        T,
        T + "\ncontrol_for: noise\ndiffers_by: x",
        ("noise.yaml:4: control_for: a method cannot be its own control",),
    ),
    (NOISE, T, T + "\ncontrol_for: vanilla", ("noise.yaml:4: control_for:", "'differs_by'")),
    (
        MASK,
        "epochs: 2",
        "epoch: 2",
        ("mask.yaml:2: phases.search.training.epoch: unknown key", "did you mean 'epochs'?"),
    ),
    (
        MASK,
        "search: {",
        "serch: {",
        ("mask.yaml:4: phases.finetune.regularisers.mask:", "the phase 'search', which does not run before 'finetune'"),
    ),
    (
        MASK,
        "  finetune:",
        "  finetun:",
        ("mask.yaml:1: phases: phases must end with the phase 'finetune', the last is 'finetun'",),
    ),
    (MASK, "phases:", "training: {}\nphases:", ("mask.yaml:1: training: training stands beside phases",)),
    (
        MASK,
        "{training: {epochs: 2}}",
        "{start: finetune}",
        ("mask.yaml:2: phases.search.start: 'search' starts from 'finetune', which is no earlier phase",),
    ),
    (NOISE, T, "training: {}\ntraining: {}", ("noise.yaml:4: key 'training' is there twice",)),
]


@pytest.mark.parametrize(("file", "old", "new", "parts"), BROKEN, ids=[f"{b[0]}-{b[3][0][:80]}" for b in BROKEN])
def test_each_mistake_is_named_with_its_line_and_a_remedy(
    files: dict[str, str], failures: Any, file: str, old: str, new: str, parts: tuple[str, ...]
) -> None:
    found = [str(problem) for problem in failures({file: edit(files[file], old, new)})]
    # All parts belong to one problem, not to several.
    assert any(all(part in message for part in parts) for message in found), "\n".join(found)
    assert not any("input_type" in message or "pydantic" in message for message in found)

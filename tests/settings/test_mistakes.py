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


#: (file, text to replace, replacement, what the message holds: place, code, values).
BROKEN: list[tuple[str, str, str, tuple[str, ...]]] = [
    # ---------------------------------------------------------------- params.yaml: values
    (
        PARAMS,
        "100, full",
        "'300', full",
        (
            "params.yaml:5: grid.sizes[0]:",
            "[invalid-value]",
            "'300' (text)",
            "at least 2 and at most 1000000000 or 'full'",
            "remove the quotes",
        ),
    ),
    (
        PARAMS,
        "100, full",
        "1",
        ("params.yaml:5: grid.sizes[0]:", "[invalid-value]", "1 (a whole number)", "at least 2"),
    ),
    (PARAMS, "100, full", "ful", ("params.yaml:5: grid.sizes[0]:", "[invalid-value]", "'ful' (text)", "'full'")),
    (PARAMS, "100, full", "true", ("params.yaml:5: grid.sizes[0]:", "[invalid-value]", "true (true/false)")),
    (
        PARAMS,
        "100, full",
        "10.0",
        ("params.yaml:5: grid.sizes[0]:", "[invalid-value]", "10.0 (a number)", "a whole number"),
    ),
    (
        PARAMS,
        "[100, full]",
        "[]",
        ("params.yaml:5: grid.sizes:", "[invalid-value]", "a list of 0", "a list of at least 1"),
    ),
    (
        PARAMS,
        "[100, full]",
        "100",
        ("params.yaml:5: grid.sizes:", "[invalid-value]", "100 (a whole number)", "a list", "value: [100]"),
    ),
    (
        PARAMS,
        "[opinions]",
        "opinions",
        ("params.yaml:4: grid.tasks:", "[invalid-value]", "'opinions' (text)", "in brackets: [opinions]"),
    ),
    (PARAMS, "- noise", "- Noise", ("params.yaml:9: methods[1]:", "[invalid-value]", "'Noise' (text)", "write noise")),
    (
        PARAMS,
        "- noise",
        "- split",
        ("params.yaml:9: methods[1]:", "[unknown-method]", "method 'split", "{split: {}}"),
    ),
    (
        TASK,
        "accuracy, f1_macro]",
        "macro_f1, accuracy]",
        ("pipelines/tasks/opinions.yaml", "[unknown-metric]", "macro_f1", "'f1_macro'"),
    ),
    (PARAMS, "seeds: [0,", "seeds: [-1,", ("params.yaml:6: grid.seeds[0]:", "[invalid-value]", "-1", "at least 0")),
    (
        PARAMS,
        "[opinions]",
        "[../etc]",
        ("params.yaml:4: grid.tasks[0]:", "[invalid-value]", "'../etc'", "a-z, 0-9, _ and -"),
    ),
    (
        PARAMS,
        "[opinions]",
        f"[{'t' * 300}]",
        ("params.yaml:4: grid.tasks[0]:", "[invalid-value]", "at most 64 characters"),
    ),
    (PARAMS, "- noise", f"- {'m' * 300}", ("params.yaml:9: methods[1]:", "[invalid-value]", "at most 64 characters")),
    (
        NOISE,
        T,
        f"control_for: {'m' * 65}\n{T}",
        ("noise.yaml:3: control_for:", "[invalid-value]", "at most 64 characters"),
    ),
    (
        PARAMS,
        "epochs: 2",
        "epochs: two",
        ("params.yaml:12: training.epochs:", "[invalid-value]", "'two' (text)", "a whole number, at least 1"),
    ),
    (
        PARAMS,
        "2e-5",
        "'2e-5'",
        ("params.yaml:13: training.learning_rate:", "[invalid-value]", "a number, above 0", "remove the quotes"),
    ),
    (PARAMS, "2e-5", ".inf", ("params.yaml:13: training.learning_rate:", "[invalid-value]", "inf")),
    (PARAMS, "2e-5", ".nan", ("params.yaml:13: training.learning_rate:", "[invalid-value]", "nan")),
    (
        PARAMS,
        "epochs: 2",
        "precision: bf17",
        ("params.yaml:12: training.precision:", "[invalid-value]", "one of 'fp32', 'bf16', 'fp16'"),
    ),
    (
        PARAMS,
        "epochs: 2",
        "dropout: {hidden: 1.5}",
        ("params.yaml:12: training.dropout.hidden:", "[invalid-value]", "'keep' or a number, at least 0 and below 1"),
    ),
    (
        PARAMS,
        "epochs: 2",
        "betas: [0.9]",
        ("params.yaml:12: training.betas:", "[invalid-value]", "a list of exactly 2"),
    ),
    (
        PARAMS,
        "epochs: 2",
        "allow_precision_loss: yes",
        ("params.yaml:12:", "[invalid-value]", "'yes' (text)", "true or false", "YAML 1.2 knows only"),
    ),
    (PARAMS, "model: {name: minilm}", "model: {}", ("params.yaml:2: model.name: 'name", "[key-missing]", "text")),
    (
        PARAMS,
        "model: {name: minilm}",
        "model: minilm",
        ("params.yaml:2: model:", "[invalid-value]", "'minilm' (text)", "a mapping with the keys name"),
    ),
    (
        PARAMS,
        "training:\n  epochs: 2\n  learning_rate: 2e-5\n",
        "",
        ("params.yaml: training: 'training", "[key-missing]"),
    ),
    (
        PARAMS,
        "training:",
        "trainings:",
        ("params.yaml:11: trainings:", "[unknown-key]", "trainings", "'training'"),
    ),
    (
        PARAMS,
        "training:",
        "trainings:",
        ("params.yaml: training: 'training", "[key-missing]", "trainings"),
    ),
    (
        PARAMS,
        "training:",
        "seeds: [1]\ntraining:",
        ("params.yaml:11: seeds:", "[unknown-key]", "it belongs under 'grid'"),
    ),
    (
        PARAMS,
        "epochs: 2",
        "betas: [0.9, 1.5]",
        ("params.yaml:12: training.betas[1]:", "[invalid-value]", "at least 0 and below 1"),
    ),
    (PARAMS, "2e-5", "2e5", ("params.yaml:13: training.learning_rate:", "[invalid-value]", "200000.0", "at most 1")),
    (
        PARAMS,
        "[opinions]",
        f"[{'a' * 300}]",
        ("params.yaml:4: grid.tasks[0]:", "[invalid-value]", "at most 64 characters"),
    ),
    (PARAMS, "minilm", r'"mini\0lm"', ("params.yaml:2:", "[nul-character]")),
    (PARAMS, "minilm", r'"mini\ud800lm"', ("params.yaml:2:", "[bad-escape]")),
    (
        PARAMS,
        "seeds: [0,",
        "seeds: [0x" + "f" * 5000 + ",",
        ("params.yaml:6:", "[ambiguous-scalar]", "looks like a number"),
    ),
    # ------------------------------------------------------------ params.yaml: names that agree
    (
        PARAMS,
        "[opinions]",
        "[opinion]",
        ("params.yaml:4: grid.tasks[0]: unknown task 'opinion'", "[unknown-task]", "opinions", "films"),
    ),
    (
        PARAMS,
        "- noise",
        "- nois",
        ("params.yaml:9: methods[1]:", "[unknown-method]", "method 'nois", "'noise'", "mask, noise, vanilla"),
    ),
    (PARAMS, "[opinions]", "[opinions, opinions]", ("params.yaml:4: grid.tasks[1]: opinions", "[listed-twice]")),
    (PARAMS, "100, full", "100, full, 100", ("params.yaml:5: grid.sizes[2]: 100", "[listed-twice]")),
    (PARAMS, "[0, 1,", "[0, 0, 1,", ("params.yaml:6: grid.seeds[1]: 0", "[listed-twice]")),
    (PARAMS, "- mask", "- noise", ("params.yaml:10: methods[2]: noise", "[listed-twice]")),
    (
        PARAMS,
        "report: {}",
        "report: {reference: noize}",
        ("params.yaml:15: report.reference:", "[not-listed]", "noize", "'noise'"),
    ),
    (PARAMS, "- vanilla\n  ", "", ("params.yaml:14: report.reference:", "[not-listed]", "vanilla")),
    (
        PARAMS,
        "methods:\n  - vanilla\n  - noise  # plain\n  - mask\n",
        "methods: []\n",
        ("params.yaml:7: methods:", "[invalid-value]", "a list of 0", "a list of at least 1"),
    ),
    # DVC reads the list of methods and these sections: it would stop at a missing one with less to say.
    (
        PARAMS,
        "methods:\n  - vanilla\n  - noise  # plain\n  - mask\n",
        "",
        ("params.yaml: methods: 'methods", "[key-missing]"),
    ),
    (PARAMS, "subsample: {}\n", "", ("params.yaml", "[key-missing]", "subsample")),
    (
        PARAMS,
        "report: {}\n",
        "",
        ("params.yaml", "[key-missing]", "report"),
    ),
    # ---------------------------------------------------------------------- params.yaml: model
    (PARAMS, "minilm", "minilmm", ("params.yaml:2: model.name:", "[revision-missing]", "minilm")),
    (PARAMS, "minilm", "org/encoder", ("params.yaml:2: model.name:", "[revision-missing]")),
    (
        PARAMS,
        MODEL,
        "{name: org/encoder, revision: '<commit>'}",
        ("params.yaml:2: model.revision:", "[bad-revision]", "not a commit, tag or branch"),
    ),
    (PARAMS, "minilm", "./absent", ("params.yaml:2: model.name:", "[model-missing]", "./absent")),
    (PARAMS, "minilm", "a b", ("params.yaml:2: model.name:", "[model-missing]")),
    (
        PARAMS,
        MODEL,
        "{name: minilm, revision: main}",
        ("params.yaml:2: model.revision:", "[revision-not-allowed]"),
    ),
    (PARAMS, MODEL, "{name: data, revision: main}", ("params.yaml:2: model.revision: 'data", "[revision-not-allowed]")),
    (PARAMS, "minilm", "params.yaml", ("params.yaml:2: model.name: 'params.yaml", "[not-a-model-directory]", "a file")),
    (
        PARAMS,
        "minilm",
        "~nobody_here/x",
        ("params.yaml:2: model.name: '~nobody_here' is not a known home directory", "[bad-path]"),
    ),
    (
        PARAMS,
        "minilm",
        "a" * 300,
        ("params.yaml:2: model.name:", "[not-a-model-directory]", "unreadable (File name too long)"),
    ),
    # ------------------------------------------------------------------------------- tasks
    (
        TASK,
        FILES,
        "{kind: file}",
        ("opinions.yaml:1: source.kind:", "[unknown-choice]", "kind 'file", "'files'", "builtin, files, hub"),
    ),
    (TASK, FILES, "{}", ("opinions.yaml:1: source.kind: 'kind", "[key-missing]", "builtin, files, hub")),
    (TASK, FILES, "{kind: files, sep: x}", ("opinions.yaml:1: source.sep:", "[unknown-key]", "sep")),
    (TASK, FILES, "{kind: hub, id: org/set}", ("opinions.yaml:1: source.revision: 'revision", "[key-missing]")),
    (
        TASK,
        FILES,
        "{kind: hub, id: org/set, revision: 'to do'}",
        ("opinions.yaml:1: source.revision:", "[bad-revision]", "not a commit"),
    ),
    (
        TASK,
        FILES,
        "{kind: builtin, generator: cue_sentense}",
        ("opinions.yaml:1: source.generator:", "[invalid-value]", "cue_sentence"),
    ),
    (
        TASK,
        FILES,
        "{kind: builtin, generator: cue_regression}",
        ("opinions.yaml:1: source.generator:", "[generator-kind]"),
    ),
    (
        TASK,
        FILES,
        "{kind: builtin, generator: cue_pair, options: {agrement: 1}}",
        ("opinions.yaml:1: source.options.agrement:", "[unknown-key]", "'agreement'"),
    ),
    (
        TASK,
        FILES,
        "{kind: builtin, generator: cue_pair}",
        ("opinions.yaml:2: splits.train:", "[unknown-split]", "opinions/train.csv", "train, dev, no_cue, reversed"),
    ),
    (
        TASK,
        "opinions/train.csv",
        "opinions/trian.csv",
        ("opinions.yaml:2: splits.train:", "[file-missing]", "opinions/trian.csv", "opinions/train.csv"),
    ),
    (TASK, "opinions/train.csv", "../secret.csv", ("opinions.yaml:2: splits.train: '../secret.csv", "[outside-data]")),
    (
        TASK,
        "opinions/train.csv",
        "/etc/passwd.csv",
        ("opinions.yaml:2: splits.train: '/etc/passwd.csv", "[outside-data]"),
    ),
    (TASK, "opinions/train.csv", "data/../../x.csv", ("opinions.yaml:2: splits.train:", "[outside-data]")),
    (TASK, "opinions/train.csv", "opinions/train.xls", ("opinions.yaml:2: splits.train:", "[unknown-format]", ".csv")),
    (
        TASK,
        "train: opinions/train.csv, ",
        "",
        ("opinions.yaml:2: splits:", "[training-split-missing]"),
    ),
    (
        TASK,
        FILES,
        "{kind: hub, id: ../data, revision: main}",
        ("opinions.yaml:1: source.id:", "[invalid-value]", "like 'owner/name'"),
    ),
    (
        TASK,
        FILES,
        "{kind: hub, id: a/.., revision: main}",
        ("opinions.yaml:1: source.id:", "[invalid-value]", "like 'owner/name'"),
    ),
    (TASK, FILES, "{kind: hub, id: ./opinions, revision: main}", ("opinions.yaml:1: source.id:", "[invalid-value]")),
    (
        TASK,
        FILES,
        "{kind: hub, id: data/opinions, revision: main}",
        (
            "opinions.yaml:1: source.id: the project has a folder or file 'data/opinions'",
            "[dataset-shadowed]",
            "rename or move",
        ),
    ),
    (
        TASK,
        FILES,
        "{kind: hub, id: glue, revision: main}",
        ("opinions.yaml:1: source.id: 'glue' names no owner", "[dataset-shadowed]"),
    ),
    (
        TASK,
        "opinions/dev.csv",
        "opinions/train.csv",
        ("opinions.yaml:2: splits.dev:", "[judged-on-training-rows]", "opinions/train.csv"),
    ),
    (
        TASK,
        "opinions/dev.csv",
        "./data//opinions/./train.csv",
        ("opinions.yaml:2: splits.dev:", "[judged-on-training-rows]"),
    ),
    (
        TASK,
        f"{FILES}\nsplits: {{train: opinions/train.csv, dev: opinions/dev.csv}}",
        "{kind: hub, id: org/set, revision: main}\nsplits: {train: train, dev: train}",
        ("opinions.yaml:2: splits.dev:", "[judged-on-training-rows]", "train"),
    ),
    (
        TASK,
        "{text: sentence}",
        "{text: sentense}",
        (
            "opinions.yaml:3: columns.text:",
            "[column-missing]",
            "sentense",
            "data/opinions/train.csv, data/opinions/dev.csv",
            "'sentence'",
            "its columns: sentence, label",
        ),
    ),
    (
        TASK,
        "{text: sentence}",
        "{text: sentence, text_pair: other, label: labels, id: n}",
        ("opinions.yaml:3: columns.label:", "[column-missing]", "labels", "'label'"),
    ),
    (
        "data/opinions/dev.csv",
        "sentence,label",
        "text,label",
        ("opinions.yaml:3: columns.text:", "[column-missing]", "sentence"),
    ),
    (
        "data/opinions/dev.csv",
        "sentence,label\nBad,0\n",
        "",
        ("opinions.yaml:2: splits.dev:", "[empty-file]", "is empty"),
    ),
    (
        TASK,
        "accuracy, f1_macro",
        "accuracy, f1",
        ("opinions.yaml:5: metrics[1]:", "[positive-label-missing]", "f1", "negative, positive"),
    ),
    (TASK, "f1_macro", "accuracy_f1", ("opinions.yaml:5: metrics[1]:", "[positive-label-missing]", "accuracy_f1")),
    (TASK, "{text: sentence}", "{label: label}", ("opinions.yaml:3: columns.text: 'text", "[key-missing]")),
    (TASK, "[negative, positive]", "[negative]", ("opinions.yaml:4: labels:", "[inconsistent]")),
    (
        TASK,
        "[negative, positive]",
        "[no, 1]",
        ("opinions.yaml:4: labels[1]:", "[invalid-value]", "1 (a whole number)", "text", "put quotes around it"),
    ),
    (TASK, "[negative, positive]", "[a, a]", ("opinions.yaml:4: labels:", "[inconsistent]")),
    (
        TASK,
        "primary: accuracy",
        "primary: acuracy",
        ("opinions.yaml:6: primary:", "[inconsistent]", "acuracy"),
    ),
    (TASK, LAST, LAST + "\npositive_label: x", ("opinions.yaml:7: positive_label:", "[inconsistent]", "x")),
    (
        TASK,
        "accuracy, f1_macro",
        "accuracy, f2",
        ("opinions.yaml:5: metrics[1]:", "[unknown-metric]", "f2", "allowed for classification", "matthews"),
    ),
    (
        TASK,
        "accuracy, f1_macro",
        "accuracy, pearson",
        ("opinions.yaml:5: metrics[1]: 'pearson", "[metric-does-not-fit]", "classification", "accuracy, accuracy_f1"),
    ),
    (TASK, "accuracy, f1_macro", "accuracy, accuracy", ("opinions.yaml:5: metrics[1]: 'accuracy", "[listed-twice]")),
    (TASK, LAST, LAST + "\nrange: [0, 1]", ("opinions.yaml:7: range:", "[bad-range]")),
    (
        TASK,
        LAST,
        LAST + "\nkeyword_segment: text_pair",
        ("opinions.yaml:7: keyword_segment:", "[column-not-declared]"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nlabel_values: {'0': negativ}",
        ("opinions.yaml:7: label_values.0: 'negativ", "[unknown-label]", "'negative'"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nlabel_values: {0: negative}",
        ("opinions.yaml:7: label_values[0]:", "[bad-name]", "0"),
    ),
    # ------------------------------------------------------------------------------- OOD
    (
        TASK,
        LAST,
        LAST + "\nood: {film: {}}",
        ("opinions.yaml:7: ood.film: unknown task 'film'", "[unknown-task]", "films"),
    ),
    (TASK, LAST, LAST + "\nood: {Films: {}}", ("opinions.yaml:7: ood.Films:", "[bad-name]")),
    (TASK, LAST, LAST + "\nood: {dev: {}}", ("opinions.yaml:7: ood.dev:", "[reserved-name]", "task's own set")),
    (
        TASK,
        LAST,
        LAST + "\nood: {scores: {}}",
        ("opinions.yaml:7: ood.scores: a classification", "[kind-mismatch]", "regression"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {labels: [a, b]}}",
        ("opinions.yaml:7: ood.films.labels:", "[in-place-only]", "pipelines/tasks/films.yaml"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {split: films/absent.csv}}",
        ("opinions.yaml:7: ood.films.split:", "[file-missing]", "films/absent.csv"),
    ),
    (TASK, LAST, LAST + "\nood: {own: {source: {kind: files}}}", ("opinions.yaml:7: ood.own:", "[split-missing]")),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: x.csv}}",
        ("opinions.yaml:7: ood.own.split:", "[file-missing]", "x.csv"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: fils}, split: x.csv}}",
        ("opinions.yaml:7: ood.own.source.kind:", "[unknown-choice]", "'files'"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: opinions/dev.csv, labels: [bad, positive]}}",
        ("opinions.yaml:7: ood.own:", "[labels-differ]", "negative", "bad"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negative: negative}}}",
        ("opinions.yaml:7: ood.films.label_map:", "[label-unmapped]", "positive"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negativ: negative, positive: positive, negative: negative}}}",
        ("ood.films.label_map.negativ: 'negativ", "[unknown-label]", "'negative'"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negative: negativ, positive: positive}}}",
        ("ood.films.label_map.negative: 'negativ", "[unknown-label]", "'negative'"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {label_map: {negative: positive, positive: positive}}}",
        ("ood.films.label_map:", "[label-unreached]", "negative"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: data/opinions/train.csv}}",
        ("opinions.yaml:7: ood.own.split:", "[judged-on-training-rows]", "data/opinions/train.csv"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {films: {split: opinions/train.csv}}",
        ("opinions.yaml:7: ood.films.split:", "[judged-on-training-rows]", "opinions/train.csv"),
    ),
    (
        TASK,
        LAST,
        LAST + "\nood: {own: {source: {kind: files}, split: opinions/dev.csv, columns: {text: sentense}}}",
        ("opinions.yaml:7: ood.own.columns.text:", "[column-missing]", "sentense", "'sentence'"),
    ),
    # ------------------------------------------------------------------------------- methods
    (
        NOISE,
        "noise:",
        "noize:",
        ("noise.yaml:2: regularisers.noize:", "[unknown-regulariser]", "noize", "'noise'", "mask, noise, split"),
    ),
    (
        NOISE,
        "scale:",
        "scael:",
        ("noise.yaml:2: regularisers.noise.scael:", "[unknown-key]", "scael", "'scale'", "allowed here: scale, shape"),
    ),
    (
        NOISE,
        "1e-5",
        "-1e-5",
        ("noise.yaml:2: regularisers.noise.scale:", "[invalid-value]", "-1e-05 (a number)", "at least 0"),
    ),
    (
        NOISE,
        "{scale: 1e-5}",
        "",
        ("noise.yaml:2: regularisers.noise:", "[invalid-value]", "nothing (null)", "write {}"),
    ),
    (
        NOISE,
        "\n  noise: {scale: 1e-5}",
        " noise",
        ("noise.yaml:1: regularisers:", "[invalid-value]", "'noise' (text)", "'noise: {}'"),
    ),
    (
        NOISE,
        "regularisers:\n  noise",
        "regularisers:\n- noise",
        ("noise.yaml:1: regularisers:", "[invalid-value]", "a list of 1"),
    ),
    (NOISE, "training: {}", "training: {epochs: null}", ("noise.yaml:3: training.epochs:", "[invalid-value]")),
    (
        NOISE,
        "training: {}",
        "training: {learning_rat: 1e-4}",
        ("noise.yaml:3: training.learning_rat:", "[unknown-key]", "'learning_rate'"),
    ),
    (
        NOISE,
        T,
        "training: {epochs: -1}",
        ("noise.yaml:3: training.epochs:", "[invalid-value]", "at least 0 and at most 10000"),
    ),
    (
        NOISE,
        T,
        "training: {betas: [0.9, 1.5]}",
        ("noise.yaml:3: training.betas[1]:", "[invalid-value]", "at least 0 and below 1"),
    ),
    (
        NOISE,
        T,
        "training: {steps_factor: 1e9}",
        ("noise.yaml:3: training.steps_factor:", "[invalid-value]", "at most 1000"),
    ),
    (
        NOISE,
        T,
        "training: {batch_size: 70000}",
        ("noise.yaml:3: training.batch_size:", "[invalid-value]", "at most 65536"),
    ),
    (
        NOISE,
        T,
        "training: {learning_rate: 3e4}",
        ("noise.yaml:3: training.learning_rate:", "[invalid-value]", "at most 1"),
    ),
    (
        NOISE,
        T,
        "training: {epochs: 9000, steps_factor: 2}",
        (
            "noise.yaml:3: training.steps_factor: steps_factor 2 of epochs 9000 makes epochs 18000",
            "[bad-length]",
            "1 to 10000",
        ),
    ),
    (
        NOISE,
        T,
        "training: {steps_factor: 0.1}",
        (
            "noise.yaml:3: training.steps_factor: steps_factor 0.1 of epochs 2 makes epochs 0",
            "[bad-length]",
            "1 to 10000",
        ),
    ),
    (
        NOISE,
        T,
        T + "\ncontrol_for: vanila\ndiffers_in: [regularisers]",
        ("noise.yaml:4: control_for:", "[unknown-method]", "method 'vanila", "'vanilla'"),
    ),
    (
        NOISE,
        T,
        T + "\ncontrol_for: noise\ndiffers_in: [training]",
        ("noise.yaml:4: control_for:", "[refers-to-itself]", "its own control"),
    ),
    (NOISE, T, T + "\ncontrol_for: vanilla", ("noise.yaml:4: control_for:", "[inconsistent]")),
    (
        MASK,
        "epochs: 2",
        "epoch: 2",
        ("mask.yaml:2: phases.search.training.epoch:", "[unknown-key]", "'epochs'"),
    ),
    (
        MASK,
        "search: {",
        "serch: {",
        ("mask.yaml:4: phases.finetune.regularisers.mask:", "[phase-not-before]", "search", "finetune"),
    ),
    (
        MASK,
        "  finetune:",
        "  finetun:",
        ("mask.yaml:1: phases:", "[inconsistent]", "finetun"),
    ),
    (MASK, "phases:", "training: {}\nphases:", ("mask.yaml:1: training: training", "[inconsistent]")),
    (
        MASK,
        "{training: {epochs: 2}}",
        "{start: finetune}",
        ("mask.yaml:2: phases.search.start: 'search", "[inconsistent]", "finetune"),
    ),
    (
        NOISE,
        T,
        T + '\nsources: {regularisers.noise.scal: "ours: a guess"}',
        (
            "noise.yaml:4: sources.regularisers.noise.scal: this file sets no such value",
            "[unknown-source]",
            "did you mean 'regularisers.noise.scale'?",
        ),
    ),
    (
        NOISE,
        T,
        T + '\nsources: {regularisers.noise.scale: "code: a/b train.py"}',
        ("noise.yaml:4: sources.regularisers.noise.scale: ", "owner/repository path:line"),
    ),
    (
        NOISE,
        T,
        T + '\nsources: {regularisers.noise.scale: "table 1"}',
        ("noise.yaml:4: sources.regularisers.noise.scale: ", "begins with none of 'paper: '"),
    ),
    (NOISE, T, "training: {}\ntraining: {}", ("noise.yaml:4:", "[duplicate-key]", "training")),
]


@pytest.mark.parametrize(("file", "old", "new", "parts"), BROKEN, ids=[f"{b[0]}-{b[3][0][:80]}" for b in BROKEN])
def test_each_mistake_is_named_with_its_line_and_a_remedy(
    files: dict[str, str], failures: Any, file: str, old: str, new: str, parts: tuple[str, ...]
) -> None:
    found = [str(problem) for problem in failures({file: edit(files[file], old, new)})]
    # All parts belong to one problem, not to several.
    assert any(all(part in message for part in parts) for message in found), "\n".join(found)
    assert not any("input_type" in message or "pydantic" in message for message in found)

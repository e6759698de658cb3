"""A project with a tiny encoder and a few generated rows of every kind of task, in which one regulariser is tried."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.catalogue import OWN
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.grid.cell_keys import write_plan
from regft_core.grid.data import prepare
from regft_core.hooks.registry import discover
from regft_core.runs.context import Job
from regft_core.settings.derived import changes_of, regularisers_of
from regft_core.settings.document import yaml_text
from regft_core.settings.method_errors import composition_errors
from regft_core.settings.preset import link
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import METHODS, find, method_file, names, read, task_file

WORDS = (
    "the a is was it not and or but very good bad great poor film movie story plot actor music food place service "
    "he she they we you i this that who what when where how all some no yes one two three red blue green new old "
    "big small fast slow happy sad love hate see go say think make take day night man woman child dog cat house"
)
#: Of BERT's configuration, and of the families whose configurations are like it.
BLOCKS: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 160,
    # Larger than usual, so that a change at one site is visible in the logits of so small a model.
    "initializer_range": 0.1,
}
SIZES: dict[str, Any] = {**BLOCKS, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
BERT_TOKENS = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
SIZE = 16
ROWS = {"train": 32, "dev": 16}
#: Four, so that a method that treats some layers in another way has both sorts.
LAYERS = 4
_POLARITY = {"labels": ["bad", "good"], "metrics": ["accuracy"]}
_PROMPT = {"words": {"bad": "bad", "good": "good"}}
#: Task -> its YAML, but for where the rows are.
TASKS: dict[str, dict[str, Any]] = {
    "text": {
        "columns": {"text": "text", "label": "polarity"},
        "prompt": {"template": "{text} it was [MASK] .", **_PROMPT},
        **_POLARITY,
    },
    "pair": {
        "columns": {"text": "text", "text_pair": "other", "label": "polarity"},
        "prompt": {"template": "{text} [MASK] , {text_pair}", **_PROMPT},
        **_POLARITY,
    },
    "multi_label": {
        "kind": "multi_label",
        "columns": {"text": "text", "label": "topics"},
        "labels": ["film", "food", "music"],
        "metrics": ["f1_macro"],
    },
    "ordinal": {
        "kind": "ordinal",
        "columns": {"text": "text", "label": "grade"},
        "labels": ["poor", "slow", "great"],
        "metrics": ["kappa_quadratic"],
    },
    "regression": {
        "kind": "regression",
        "columns": {"text": "text", "text_pair": "other", "label": "score"},
        "range": [0, 5],
        "metrics": ["pearson"],
    },
}


@dataclass(frozen=True)
class Trial:
    """A planned project with a ``method`` that has the regulariser, on tasks that it fits, and its ``controls``."""

    root: Path
    method: str
    tasks: Sequence[str]
    controls: Sequence[str] = ()

    def job(self, task: str, method: str = "") -> Job:
        return Job(str(self.root), method or self.method, task, str(SIZE), 0)


def trial_of(root: Path, folder: Path, name: str) -> Trial:
    """Write a project in which ``name`` acts, with code and methods of ``root``; ConfigError where it acts nowhere."""
    encoder = _base(root, folder)
    if (root / METHODS).is_dir():
        shutil.copytree(root / METHODS, folder / METHODS)
    wrong: ConfigError | None = None
    for method in _methods(folder, name):
        try:
            return _trial_with(folder, encoder, method, name)
        except ConfigError as error:
            wrong = wrong or error
    assert wrong is not None
    raise wrong


def plain_trial(root: Path, folder: Path, tasks: Sequence[str], **settings: Any) -> Trial:
    """Write a project with plain fine-tuning and further ``settings`` of ``params.yaml``; raises ConfigError."""
    _write_params(folder, _base(root, folder), tasks, ["vanilla"], **settings)
    return _planned(Trial(folder, "vanilla", tasks))


@contextmanager
def quiet() -> Iterator[None]:
    """Print nothing within the block: warnings about generated rows help nobody."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _base(root: Path, folder: Path) -> Path:
    """Write rows, tasks and the encoder, with the own code of ``root``; returns the encoder's folder."""
    for own in OWN:
        link(folder / own, (root / own).resolve())
    for split, count in ROWS.items():
        _write_rows(folder / "data" / f"{split}.csv", count, first=ROWS["train"] * (split == "dev"))
    for task, declared in TASKS.items():
        rows = {"source": {"kind": "files"}, "splits": {"train": "train.csv", "dev": "dev.csv"}}
        write_text(folder / task_file(task), yaml_text({**rows, **declared, "primary": declared["metrics"][0]}))
    return tiny_encoder(folder)


def _methods(folder: Path, name: str) -> Iterator[str]:
    """Methods that may have the regulariser: that of its name; else it alone, the project's others, the shipped."""
    own = sorted(path.stem for path in (folder / METHODS).glob("*.yaml"))
    if find(folder, METHODS, name) is not None:
        yield name
        return
    write_text(folder / method_file(name), yaml_text({"regularisers": {name: {}}, "training": {}}))
    yield name
    documents = {other: read(folder, METHODS, other) for other in dict.fromkeys((*own, *names(folder, METHODS)))}
    having = [(other, _options(found.data, name)) for other, found in documents.items() if found is not None]
    # That with the fewest options of its own: the nearest to the method as it is.
    yield from (other for other, options in sorted(having, key=lambda pair: len(pair[1])) if options)


def _options(data: Mapping[str, Any], name: str) -> list[str]:
    """The options that a method sets of the regulariser, and a name for each phase that has it."""
    parts = [(phase, part[name]) for phase, part in regularisers_of(data) if name in part]
    return [text for phase, options in parts for text in (phase, *(options or ()))]


def _trial_with(folder: Path, encoder: Path, method: str, name: str) -> Trial:
    """The trial with one method, on all tasks that it and its controls fit; raises ConfigError where there is none."""
    document = read(folder, METHODS, method)
    assert document is not None
    changes = changes_of(document.data, (), discover())
    ends = [end for end, change in changes.items() if change.plain is None and _options(change.values, name)]
    methods = [method, *(f"{method}_{end}" for end in ends)]
    _write_params(folder, encoder, [*TASKS], methods)
    project = open_project(folder, check_composition=False)
    if not any(name in dict(phase.regularisers) for phase in project.methods[method].phases):
        message, hint = f"lists '{name}' under no regularisers", f"add regularisers: {{{name}: {{}}}}, or rename it"
        raise ConfigError([Problem("not-listed", method_file(method), 0, "regularisers", message, hint)])
    tasks = [
        task
        for task in TASKS
        if not any(
            composition_errors(
                project.builder, project.methods[each], project.tasks[task], project.model(task), project.tasks
            )
            for each in methods
        )
    ]
    # Where it fits none, opening the project says why of each.
    _write_params(folder, encoder, tasks or [*TASKS], methods)
    return _planned(Trial(folder, method, tasks, methods[1:]))


def _planned(trial: Trial) -> Trial:
    with quiet():
        prepare(open_project(trial.root))
        write_plan(open_project(trial.root))
    return trial


def _write_params(folder: Path, encoder: Path, tasks: Sequence[str], methods: list[str], **more: Any) -> None:
    settings = {
        **more,
        "model": {"name": str(encoder.resolve()), "max_length": 32},
        "grid": {"tasks": list(tasks), "sizes": [SIZE], "seeds": [0]},
        "methods": methods,
        "subsample": {},
        "training": {"max_steps": 6, "epochs": 2, "batch_size": 4, "learning_rate": 1.0e-3},
        "execution": {"executor": "serial", "device": "cpu"},
        "report": {"reference": methods[0]},
    }
    write_text(folder / "params.yaml", yaml_text(settings))


def _write_rows(path: Path, count: int, first: int) -> None:
    """Rows of texts of 4 to 12 words; their labels of every kind depend on the words."""
    words = WORDS.split()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "other", "polarity", "topics", "grade", "score"])
        for number in range(first, first + count):
            drawn = [words[(7 * number + (3 + number % 5) * place) % len(words)] for place in range(3 + number % 9)]
            level = number % 3
            topics = ["film", "food", "music"][: 1 + level] if number % 2 else ["music"]
            polarity, grade = ("bad", "good")[number % 2], ("poor", "slow", "great")[level]
            text = " ".join([polarity, grade, *drawn])
            other = " ".join([*reversed(drawn[:4]), polarity])
            rows.writerow([text, other, polarity, ";".join(topics), grade, level + number % 2])


def tiny_encoder(folder: Path) -> Path:
    """Write a BERT of ``LAYERS`` layers with its masked-LM head under ``folder``, and return its directory."""
    from transformers import AutoModelForMaskedLM, BertConfig, BertTokenizer

    tokenizer = BertTokenizer(vocab=vocabulary(BERT_TOKENS), model_max_length=BLOCKS["max_position_embeddings"])
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    config = BertConfig(**{**SIZES, **ids, "num_hidden_layers": LAYERS})
    write_checkpoint(folder / "tiny", lambda: AutoModelForMaskedLM.from_config(config), tokenizer)
    return folder / "tiny"


def vocabulary(special: Sequence[str]) -> dict[str, int]:
    """Token -> id of ``special`` tokens, letters and ``WORDS``; other words are spelt in letters."""
    symbols = [*"abcdefghijklmnopqrstuvwxyz0123456789.,?!'-"]
    tokens = [*special, *symbols, *(f"##{letter}" for letter in symbols[:36]), *WORDS.split()]
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}


def write_checkpoint(directory: Path, build: Any, tokenizer: Any) -> None:
    """Write what ``build`` returns, with biases that are not 0: a bias that is lost on the way would not be seen."""
    import torch

    from regft_core.models.load import quiet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        model = build()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(0.0, 0.05)
    with quiet():
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)

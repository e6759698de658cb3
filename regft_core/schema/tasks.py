"""``pipelines/tasks/*.yaml``: what rows mean, how they are asked, and what judges them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from regft_core.catalogue import KINDS
from regft_core.kinds import find
from regft_core.names import listing, suggestion
from regft_core.schema import Inconsistency, Items, Layer, Name, SomeItems, StrictModel, named_in
from regft_core.schema.sources import Source

#: Names that mean something else where sets are named: in files of results and in MLflow.
RESERVED_SETS = frozenset(
    {
        *("train", "dev", "unlabelled", "train_within", "run", "cost", "failed", "decision", "collapsed"),
        *("mixed_environments", "cost_ratio", "no_better_than_constant", "answers"),
        *("same_answers_under_every_seed", "verdict_reference", "verdict_control", "verdict_replacement"),
        *("versus_reference", "versus_control", "versus_replacement", "versus_opponent"),
    }
)
#: Keys that describe an out-of-distribution set in place; a set with a file of its own says them there.
_IN_PLACE = ("columns", "labels", "label_values", "drop_labels", "drop_empty")


class ColumnsConfig(StrictModel):
    """Column names in the source."""

    text: str
    text_pair: str | None = None
    label: str = "label"
    labels: SomeItems[str] | None = Field(
        None, description="multi_label: columns of 0 and 1, one for each of the task's labels, in their order"
    )
    label_delimiter: str | None = Field(
        None, min_length=1, description="multi_label: what stands between the labels of a cell; ';' when absent"
    )
    id: str | None = Field(None, description="identifier column; the row number when absent")
    group: str | None = Field(
        None, description="rows of one group (product, author, premise) are never split and are resampled together"
    )

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.text_pair is None else (self.text, self.text_pair)

    @property
    def of_labels(self) -> tuple[str, ...]:
        return (self.label,) if self.labels is None else self.labels


class FoldsConfig(StrictModel):
    """Cross-validation on the rows of ``train``: seed s is repeat s // folds and is evaluated on fold s % folds."""

    folds: int = Field(ge=2, le=100, description="parts; each judges the model that is trained on the others")
    repeats: int = Field(1, ge=1, le=100, description="how often the rows are dealt into folds anew")


class SplitsConfig(StrictModel):
    """Split names of a hub set, or file paths for ``files``."""

    train: str | None = Field(None, description="absent for a set that is only evaluated on")
    dev: str | Annotated[float, Field(gt=0, lt=1)] | FoldsConfig = Field(
        description="what judges runs: a split or file, a share of train drawn once, or folds of train"
    )
    unlabelled: str | None = Field(
        None, description="further texts, for phases and methods that read no labels; a file needs no label column"
    )

    @property
    def files(self) -> list[str]:
        """Every split that is read; a development set that is no text is drawn from the training rows."""
        return [split for split in (self.train, self.dev, self.unlabelled) if isinstance(split, str)]

    @property
    def judging(self) -> str | None:
        """The split that judges other tasks' runs: dev, or all rows where dev is drawn from train."""
        return self.dev if isinstance(self.dev, str) else self.train


class OodConfig(StrictModel):
    """One out-of-distribution set of a task: ``pipelines/tasks/<name>.yaml``, or with ``source`` defined in place."""

    split: str | None = Field(None, description="split or path; the other task's dev by default")
    label_map: dict[str, str] | None = Field(
        None, description="this task's label -> the OOD set's label, by name; identity when names agree"
    )
    reversed: bool = Field(
        False, description="built so that a shortcut answers the opposite: scores below chance are expected"
    )
    # Not in dumps: a set that is left out is gone, and one that is there is the same either way.
    if_present: bool = Field(False, exclude=True, description="left out, with a warning, while its file is not there")
    source: Source | None = None
    columns: ColumnsConfig | None = None
    labels: Items[str] | None = None
    label_values: dict[str, str] | None = None
    drop_labels: Items[str] = ()
    drop_empty: bool = False


class SubmissionConfig(StrictModel):
    """Prediction files for a benchmark's server, of splits whose labels are hidden."""

    format: Literal["glue", "clue"] = Field(description="glue: tab-separated index and prediction; clue: JSON lines")
    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], str] = Field(
        min_length=1, description="name of each file -> the split that it predicts"
    )
    labels: dict[str, str] = Field({}, description="label -> how the benchmark writes it; as it is when absent")


#: Stands in a template for the tokenizer's own mask token.
MASK = "[MASK]"
#: What a template is made of, beside words.
PLACES = re.compile(r"(\{[^{}]*\}|\[MASK\])")


class PromptConfig(StrictModel):
    """How a task is asked as a cloze question (Schick and Schütze, 2021; Gao et al., 2021)."""

    template: str = Field(min_length=1, description="with {text}, {text_pair} in tasks of pairs, and [MASK], each once")
    words: dict[str, str] = Field(
        description="label -> the word at [MASK] that stands for it: one token of the encoder"
    )

    def unfit(self, labels: Sequence[str] | None, paired: bool) -> Iterator[Inconsistency]:
        """Yield what is wrong for a task with these labels; keys below ``prompt``, and a sentence."""
        places, allowed = PLACES.findall(self.template), ["{text}", *(["{text_pair}"] if paired else []), MASK]
        for place in dict.fromkeys([*allowed, *places]):
            if place not in allowed:
                message = f"the template has {place}, which this task has not; allowed are {listing(allowed)}"
                yield ("template",), message
            elif places.count(place) != 1:
                yield ("template",), f"the template has {place} {places.count(place)} times; write it once"
        if missing := [label for label in labels or () if label not in self.words]:
            yield ("words",), f"no word for {listing(missing)}; give every label one"
        for label, word in self.words.items():
            if label not in (labels or ()):
                yield ("words", label), f"'{label}' is not a label of this task; {suggestion(label, labels or ())}"
            if not word or word != word.strip() or list(self.words.values()).count(word) > 1:
                message = f"the word of '{label}' is {word!r}; give each label one of its own, without spaces"
                yield ("words", label), message


class TaskConfig(StrictModel):
    """One dataset: where it comes from, its labels, its metrics, what judges it out of distribution."""

    description: str = ""
    kind: Annotated[str, named_in(KINDS)] = Field("classification", description="a file of regft_core/kinds")
    source: Source
    splits: SplitsConfig
    columns: ColumnsConfig
    labels: Items[str] | None = Field(
        None, description="names in the order of the model's outputs; integer values in the source index this list"
    )
    label_values: dict[str, str] | None = Field(None, description="value in the source (as text) -> label name")
    drop_labels: Items[str] = Field(
        (), description="values in the source (as text) that mean unlabelled; their rows are dropped and counted"
    )
    drop_empty: bool = Field(False, description="drop and count rows without text instead of refusing the set")
    range: Annotated[tuple[float, float], Field(strict=False)] | None = Field(
        None, description="smallest and largest value of a regression target"
    )
    metrics: SomeItems[str]
    primary: str = Field(description="the metric that ranks methods, one of ``metrics``")
    positive_label: str | None = Field(None, description="the class that F1 counts; F1 needs it")
    keyword_segment: Literal["text", "text_pair"] | None = Field(
        None, description="segment that token-level perturbations leave untouched (keywords in CSL)"
    )
    # Not in dumps: rows do not depend on it; the runs that read it have it in their keys.
    prompt: PromptConfig | None = Field(
        None, exclude=True, description="template and words of prompt-based fine-tuning (pooling: mask)"
    )
    ood: dict[Name, OodConfig] = Field({})
    submission: SubmissionConfig | None = Field(None, description="prediction files for a benchmark's server")
    training: Layer = Field({}, description="what this task changes in the shared protocol")
    model: Layer = Field({}, description="what this task changes in the section model")

    def inconsistencies(self) -> Iterator[Inconsistency]:
        labels, kind = self.labels or (), find(self.kind)
        if not isinstance(self.splits.dev, str) and self.splits.train is None:
            yield ("splits", "dev"), "'dev' is drawn from the rows of 'train', which is missing; add splits.train"
        if wrong := kind.wrong_labels(self.labels):
            yield ("labels",), wrong
        if len(set(labels)) != len(labels):
            yield ("labels",), "'labels' names a label twice; keep one"
        yield from self._label_columns()
        if self.primary not in self.metrics:
            hint = suggestion(self.primary, self.metrics, "metrics of the task")
            yield ("primary",), f"primary '{self.primary}' is not one of the task's metrics; {hint}"
        if self.positive_label not in (None, *labels):
            message = f"positive_label '{self.positive_label}' is not a label; give one of {list(labels)}"
            yield ("positive_label",), message
        if self.range is not None and (unfit := kind.wrong_range(self.range)):
            yield ("range",), "; ".join(unfit)
        if self.keyword_segment == "text_pair" and self.columns.text_pair is None:
            yield ("keyword_segment",), "is text_pair, but columns.text_pair is missing; write text, or add the column"
        yield from _unknown_labels((), self.label_values, labels)
        yield from self._sets()
        if self.prompt is not None:
            for path, message in self.prompt.unfit(self.labels, self.columns.text_pair is not None):
                yield ("prompt", *path), message
        if self.submission is not None and kind.has_labels and not kind.one_label:
            message = f"no format of a benchmark's server has answers of kind: {self.kind}; remove 'submission'"
            yield ("submission",), message
        if self.submission is not None and self.submission.labels and set(labels) != set(self.submission.labels):
            message = f"submission.labels writes {sorted(self.submission.labels)}, but the task's labels are "
            yield ("submission", "labels"), f"{message}{sorted(labels)}; name these"

    def _sets(self) -> Iterator[Inconsistency]:
        """Names and keys that an out-of-distribution set cannot have, as far as this file shows it."""
        for name, config in self.ood.items():
            at = ("ood", name)
            if name in RESERVED_SETS:
                yield at, f"'{name}' is a word of the files of results; give the set another name"
            if config.source is None:
                for key in [key for key in _IN_PLACE if key in config.model_fields_set]:
                    hint = f"write it in pipelines/tasks/{name}.yaml, or give 'source' here"
                    yield (*at, key), f"'{key}' is for sets with a 'source' in place; {hint}"
                continue
            if config.split is None:
                yield at, "'split' is missing: a set with a 'source' in place names its split or file"
            labels = self.labels if config.labels is None else config.labels
            yield from _unknown_labels(at, config.label_values, labels or ())

    def _label_columns(self) -> Iterator[Inconsistency]:
        """Columns that are read as two things, and columns of labels that do not fit kind or labels."""
        kind = find(self.kind)
        several = kind.has_labels and not kind.one_label
        places: list[tuple[tuple[str, ...], ColumnsConfig | None, tuple[str, ...] | None]]
        places = [((), self.columns, self.labels)]
        places += [(("ood", name), own.columns, own.labels or self.labels) for name, own in self.ood.items()]
        for at, columns, labels in places:
            if columns is None:
                continue
            path = (*at, "columns")
            # The one would give away the other.
            for key, others in (("text", columns.of_labels), ("text_pair", (columns.text, *columns.of_labels))):
                if (column := getattr(columns, key)) in others:
                    message = f"'{key}' is the column '{column}', which is read as something else; name another column"
                    yield (*path, key), message
            for key in [key for key in ("labels", "label_delimiter") if getattr(columns, key) and not several]:
                message = f"'{key}' is for kind: multi_label, and an example of a {self.kind} task has one label"
                yield (*path, key), f"{message}; remove it, or change the kind"
            if columns.labels is not None:
                for key in {"label", "label_delimiter"} & columns.model_fields_set:
                    yield (*path, key), f"'{key}' is for one column, and 'labels' names one for each label; keep one"
                if labels is not None and len(columns.labels) != len(labels):
                    counts = f"{len(columns.labels)} columns for {len(labels)} labels"
                    yield (*path, "labels"), f"{counts}; name one for each of the labels, in their order"


def _unknown_labels(
    path: tuple[str, ...], values: dict[str, str] | None, labels: tuple[str, ...]
) -> Iterator[Inconsistency]:
    for value, label in (values or {}).items():
        if label not in labels:
            yield (*path, "label_values", value), f"'{label}' is not one of labels; {suggestion(label, labels)}"

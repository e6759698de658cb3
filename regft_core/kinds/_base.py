"""The base class of the kinds of task; its defaults fit most of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regft_core.lazy import Array, Tensor, np, torch

if TYPE_CHECKING:
    from regft_core.kinds.regression import Scale

Collapse = Literal["constant", "majority"]
#: A label as files of rows have it: an index, a value, or labels of one example as the bits of a number.
Label = int | float


class WrongLabel(ValueError):
    """A raw label that does not fit what its set declares; the caller adds the place."""


@dataclass(frozen=True)
class Declared:
    """The labels of a set, as its YAML declares them.

    Attributes:
        labels: their names; None where a task has none.
        label_values: spelling in the file -> label.
        range: smallest and largest value of a regression.
        decimal: the decimal mark of numbers in text; None: a point, and no marks between thousands.
        label_column: column of the label; ``label_delimiter`` separates several labels in one cell.
    """

    labels: tuple[str, ...] | None = None
    label_values: Mapping[str, str] | None = None
    range: tuple[float, float] | None = None
    decimal: str | None = None
    label_column: str = "label"
    label_delimiter: str = ";"


class Kind(ABC):
    """One kind of task; a label or a prediction is one number per example.

    ``labels`` are names in the order of the model's outputs. ``to_set`` [K] is the index of the label of a set that
    each of them counts as (empty where tasks list no labels), and ``names`` are the set's labels.
    """

    #: Whether a task lists the names of its labels, over which a prediction is a distribution.
    has_labels: ClassVar[bool]
    #: Whether an example has exactly one of them.
    one_label: ClassVar[bool]
    #: Whether the labels have an order, which the loss knows.
    ordered: ClassVar[bool] = False
    problem_type: ClassVar[str]
    #: Of gold labels and predictions in arrays [n]: indices, values, or sets of labels (bit k is label k).
    dtype: ClassVar[Literal["int64", "float64", "uint64"]]
    #: The keys of a task's YAML that settle labels which do not match, for a hint; ends in ", " or is empty.
    label_keys: ClassVar[str]

    @abstractmethod
    def wrong_labels(self, labels: Sequence[str] | None) -> str | None:
        """Return why ``labels`` do not fit a task of this kind; None when they do."""

    def wrong_range(self, limits: tuple[float, float]) -> tuple[str, str] | None:
        """Return why a ``range`` does not fit, and the hint."""
        if self.has_labels:
            return "a task of this kind has no range", "remove it"
        if limits[0] < limits[1]:
            return None
        return f"is [{limits[0]:g}, {limits[1]:g}]; the smallest value comes first", "write [smallest, largest]"

    @abstractmethod
    def read_label(self, value: Any, declared: Declared) -> Label:
        """The label that a cell (or several: column -> cell, in the order of ``labels``) means. Raises WrongLabel."""

    def strata(self, labels: Sequence[Label]) -> list[int]:
        """The group of each row in a stratified draw."""
        return [int(label) for label in labels]

    def label_counts(self, labels: Sequence[Label], names: Sequence[str]) -> dict[str, int] | None:
        """Rows of each label by name, absent labels included; None where there are no labels."""
        if not self.has_labels:
            return None
        counts = self.indicators(np.asarray(labels, dtype=self.dtype), len(names)).sum(axis=0)
        return dict(zip(names, counts.tolist(), strict=True))

    def output_names(self, labels: Sequence[str] | None) -> tuple[str, ...]:
        """Names of the head's outputs. Raises ValueError for labels that no head fits."""
        if wrong := self.wrong_labels(labels):
            raise ValueError(wrong)
        return tuple(labels or ())

    def label_tensor(self, labels: Sequence[Label]) -> Tensor:
        return torch.tensor(labels, dtype=torch.int64)

    def target_scale(self, labels: Sequence[Label]) -> Scale | None:
        """The scale in which a network learns values (RunFailed where float32 cannot hold them); None for labels."""
        return None

    @abstractmethod
    def task_loss(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """The task's loss, a mean over examples, of ``[B, K]`` logits and the labels of ``label_tensor``.

        ``weights``: those of ``balanced``; each term is multiplied by its own, and the sum is divided as without.
        """

    def balanced(self, labels: Sequence[Label], outputs: int) -> tuple[Any, ...]:
        """``class_weights: balanced`` for rows with these labels: n / (K n_c). Raises ValueError for values."""
        raise ValueError("a value has no labels")

    def indicators(self, labels: Array, outputs: int) -> Array:
        """[n, ``outputs``] booleans: which outputs each of labels [n] asks for. Raises ValueError for values."""
        raise ValueError("a value has no labels")

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """``[B, ..., C]``: logits ``[B, K]`` as distributions over the last axis. Raises ValueError for values."""
        raise ValueError("a value has no probabilities")

    @abstractmethod
    def predictions(self, logits: Array, to_set: Array) -> Array:
        """[n] predictions of logits [n, K], as gold labels are written."""

    @abstractmethod
    def scores(self, logits: Array, to_set: Array, width: int) -> Array:
        """[n, ``width``] probabilities of the set's labels, or [n, 1] values; float64."""

    @abstractmethod
    def constant(self, gold: Array) -> Array:
        """[n] predictions of the best baseline that ignores the input, for gold [n]."""

    def warning(self, gold: Array, predictions: Array, names: Sequence[str]) -> str | None:
        return None

    @abstractmethod
    def collapsed(self, gold: Array, predictions: Array) -> Collapse | None:
        """``constant``: predictions [n] do not depend on the input; ``majority``: a constant would be as good.

        It does not mean that nothing was learned: with rare labels Matthews' correlation can be above 0.
        """

    @abstractmethod
    def shown(self, value: Any, names: Sequence[str]) -> str | float:
        """A gold label or a prediction as tables show it."""

    def score_columns(self, labels: Sequence[str]) -> list[str]:
        return [f"probability_{label}" for label in labels] if self.has_labels else []

    @abstractmethod
    def answer(self, scores: Sequence[float], labels: Sequence[str]) -> str | float:
        """The cell ``prediction`` of one example with these ``scores``."""

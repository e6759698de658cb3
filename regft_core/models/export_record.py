"""``regft.json`` in an exported directory, for ``regft predict``: what loading the files alone does not tell."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from regft_core.catalogue import KINDS
from regft_core.disk.files import write_json, write_text
from regft_core.disk.reading import read_record
from regft_core.errors import ModelError, StoreError, text_of
from regft_core.kinds import find
from regft_core.kinds._decision import Decision
from regft_core.models.checkpoint_files import json_object
from regft_core.schema import named_in

FILE, MLFLOW = "regft.json", "MLmodel"


class Part(BaseModel):
    """Base of what is in the file: a key of a later version is left aside."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class AnsweredBy(Part):
    """The regulariser that answers in place of a model, with its options."""

    regulariser: str
    options: dict[str, Any] = {}


class ServedPrompt(Part):
    """A template with {text}, {text_pair} and [MASK], a token for each label, and demonstrations (token ids)."""

    template: str
    tokens: tuple[str, ...]
    demonstrations: list[list[int]] = []


class Abstain(Part):
    """Answers below ``threshold`` are not given; those above are right with ``accuracy``; ``groups``: in effect."""

    threshold: float = Field(ge=0, le=1)
    accuracy: float = Field(gt=0, lt=1)
    confidence: float = Field(gt=0, lt=1)
    coverage: float = Field(ge=0, le=1)
    rows: int = Field(ge=1)
    models: int = Field(1, ge=1)
    groups: float | None = None


class Refit(Part):
    """Of a model of all labelled rows: what is expected of it, from ``judged`` runs with the same settings."""

    rows: int
    judged_rows: tuple[int, int]
    judged_seeds: tuple[int, ...]
    temperature: float | None = None
    metric: str
    expected: float
    low: float | None
    high: float | None
    confidence: float


class Served(Part):
    """How an exported model was trained to read its inputs.

    Attributes:
        text, text_pair: columns of the training data.
        labels: names in the order of the logits; None where the task has none.
        max_length: tokens that the model saw of a row; None for what reads whole texts.
        rows_per_example: 2 when the texts of a pair are rows of their own.
        instruction: stands before every text (``model.prompt``).
        windows, stride: rows of a text beyond ``max_length`` at most, and the tokens that neighbours share.
        temperature: what ``regft predict`` divides logits by, where a temperature could not go into a head's weights.
        offsets: added to the logarithms of its probabilities (of several labels to their log odds) before the decision;
            empty where the most probable label is the decision.
        at_least_one: of several labels, whether the most probable one is given where none is above 0.5.
        label_delimiter: what stands between the labels of a cell of the training file.
        file_format: how the file of the training rows was read, as far as that was said (encoding, delimiter, sheet).
        refit: None for the model of a run that was judged itself.
    """

    format: Literal[1] = 1
    text: str
    text_pair: str | None = None
    kind: Annotated[str, named_in(KINDS)]
    labels: tuple[str, ...] | None = None
    max_length: int | None = Field(ge=1)
    rows_per_example: Literal[1, 2] = 1
    instruction: str = ""
    windows: int = Field(1, ge=1)
    stride: int = Field(0, ge=0)
    task: str | None = None
    run_key: str | None = None
    answered_by: AnsweredBy | None = None
    abstain: Abstain | None = None
    temperature: float | None = Field(None, gt=0)
    offsets: tuple[float, ...] = ()
    at_least_one: bool = False
    refit: Refit | None = None
    label_delimiter: str = ";"
    file_format: dict[Literal["delimiter", "encoding", "quoted", "sheet"], Any] = {}
    prompt: ServedPrompt | None = None

    def deciding(self, scores: Sequence[float]) -> Sequence[float]:
        """Return the scores [K] by which ``Kind.answer`` decides, of one example's probabilities ``scores`` [K]."""
        if not self.offsets:
            return scores
        return Decision(self.offsets, self.at_least_one).scores(scores, one_label=find(self.kind).one_label)


def refuse_foreign(directory: Path, file: str) -> None:
    """Raise ModelError where something is at ``directory`` that is no export, with its ``file``, and not empty."""
    empty = directory.is_dir() and not any(directory.iterdir())
    if directory.exists() and not (directory / file).is_file() and not empty:
        message = f"export: {directory} exists and is not a model directory"
        raise ModelError("in-the-way", f"{message}\n    -> choose another or remove it")


def write_served(directory: Path, served: Served, model: Any = None, tokenizer: Any = None) -> None:
    """Write ``regft.json``, and ``MLmodel`` for MLflow; ``model``, ``tokenizer``: of transformers' own classes."""
    write_json(directory / FILE, served.model_dump(mode="json"))
    how: dict[str, Any] = {"loader_module": "regft_core.serve.loaded", "python_version": platform.python_version()}
    flavors = {"python_function": how}
    if model is not None:
        tokenizer.save_pretrained(directory / "components" / "tokenizer")  # MLflow looks nowhere else
        flavors["transformers"] = {
            **{"task": "text-classification", "model_binary": ".", "pipeline_model_type": type(model).__name__},
            **{"components": ["tokenizer"], "tokenizer_type": type(tokenizer).__name__},
        }
    write_text(directory / MLFLOW, yaml.safe_dump({"flavors": flavors}))


def read_served(directory: Path) -> Served | None:
    """Return what ``directory`` says of itself; None for a model from elsewhere. Raises ModelError for a wrong file."""
    try:
        return read_record(directory / FILE, Served)
    except StoreError as error:
        if error.code == "file-missing":
            return None
        kind = (json_object(directory / FILE) or {}).get("kind")
        if isinstance(kind, str) and kind not in KINDS.names():
            message = f"{directory / FILE}: there is no kind of task '{kind}' here"
            hint = f"where it is a project's own (kinds/{kind}.py), give the command in the folder of that project"
            raise ModelError("unknown-kind", f"{message}\n    -> {hint}") from error
        message = f"{directory / FILE} is not of this version ({text_of(error).splitlines()[0]})"
        raise ModelError("outdated-export", f"{message}\n    -> export the model again") from error

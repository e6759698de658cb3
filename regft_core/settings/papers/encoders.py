"""Which encoder a name, an alias or a local directory stands for, and what it was trained on since pretraining.

Papers and runs spell one encoder in many ways: with and without the organisation of its hub id, as an alias, as a
directory. Two spellings are one encoder when they lead to the same entry of ``KNOWN`` and to the same tasks in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from regft_core import shipped
from regft_core.errors import ConfigError
from regft_core.models.aliases import ALIASES
from regft_core.schema import Name, StrictModel
from regft_core.settings.document import load_yaml
from regft_core.settings.files import CONTAMINATION
from regft_core.settings.validate import validate


class Shape(NamedTuple):
    """Family, layers (of one stack), width and vocabulary, as ``config.json`` says."""

    family: str
    layers: int
    width: int
    vocabulary: int


_BERT = {"base": (12, 768), "large": (24, 1024)}
#: Hub id -> shape.
KNOWN: dict[str, Shape] = {
    **{
        f"google-bert/bert-{size}-{case}": Shape("bert", *_BERT[size], vocabulary)
        for size in _BERT
        for case, vocabulary in (("uncased", 30522), ("cased", 28996))
    },
    **{f"FacebookAI/roberta-{size}": Shape("roberta", *_BERT[size], 50265) for size in _BERT},
    **{f"google/electra-{size}-discriminator": Shape("electra", *_BERT[size], 30522) for size in _BERT},
    **{f"microsoft/deberta-{size}": Shape("deberta", *_BERT[size], 50265) for size in _BERT},
    **{f"xlnet/xlnet-{size}-cased": Shape("xlnet", *_BERT[size], 32000) for size in _BERT},
    "microsoft/deberta-xlarge": Shape("deberta", 48, 1024, 50265),
    "microsoft/deberta-v2-xlarge": Shape("deberta-v2", 24, 1536, 128100),
    "microsoft/deberta-v2-xxlarge": Shape("deberta-v2", 48, 1536, 128100),
    "facebook/bart-base": Shape("bart", 6, 768, 50265),
    "facebook/bart-large": Shape("bart", 12, 1024, 50265),
    "hfl/chinese-bert-wwm-ext": Shape("bert", 12, 768, 21128),
    "hfl/chinese-roberta-wwm-ext-large": Shape("bert", 24, 1024, 21128),
    "hfl/chinese-macbert-large": Shape("bert", 24, 1024, 21128),
    "sentence-transformers/all-MiniLM-L6-v2": Shape("bert", 6, 384, 30522),
    "sentence-transformers/all-mpnet-base-v2": Shape("mpnet", 12, 768, 30527),
}
#: At the end of a checkpoint's name: the task that it was fine-tuned on.
_TUNED = ("mnli",)
#: A snapshot in the hub's cache: ``models--FacebookAI--roberta-large/snapshots/<commit>``.
_SNAPSHOT = re.compile(r"(?:^|[/\\])models--([^/\\]+?)--([^/\\]+)[/\\]snapshots[/\\]")
#: Layers, width and vocabulary, under the names that the families give them.
_SIZES = (
    ("num_hidden_layers", "n_layer", "encoder_layers", "n_layers"),
    ("hidden_size", "d_model", "dim"),
    ("vocab_size",),
)
_FACTS = (
    "model_type",
    "_name_or_path",
    "architectures",
    "finetuning_task",
    *(name for names in _SIZES for name in names),
)
#: What a classifier was trained on when its configuration does not say.
UNNAMED = "a task that its configuration does not name"


@dataclass(frozen=True)
class Encoder:
    """One encoder; equal ``name`` and ``trained_on`` mean the same start."""

    #: Hub id as ``KNOWN`` has it, else as given; of a directory that nothing tells its path.
    name: str
    #: Labelled tasks between pretraining and the run, in order.
    trained_on: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """For tables and sentences, without the organisation."""
        return self.name.rstrip("/").rpartition("/")[2] + "".join(f", tuned on {task}" for task in self.trained_on)

    def after(self, *tasks: str) -> Encoder:
        """The encoder once it was trained on ``tasks``, too."""
        return Encoder(self.name, (*self.trained_on, *tasks))

    def same(self, other: Encoder) -> bool:
        """Whether both are one encoder; an unknown name without an organisation is that of any organisation."""
        one, two = self.name.casefold(), other.name.casefold()
        same = one == two if "/" in one and "/" in two else one.rpartition("/")[2] == two.rpartition("/")[2]
        return same and self.trained_on == other.trained_on


def named(name: str) -> Encoder:
    """The encoder of an alias or a hub id, with or without its organisation, in any case of letters."""
    full = (ALIASES[name].hub if name in ALIASES else name).casefold()
    task = next((task for task in _TUNED if full.endswith(f"-{task}")), "")
    start = full.removesuffix(f"-{task}")
    known = next((one for one in KNOWN if start in (one.casefold(), one.rpartition("/")[2].casefold())), None)
    return Encoder(name) if known is None else Encoder(known, (task,) if task else ())


def in_directory(path: str, config: Mapping[str, Any]) -> Encoder:
    """The encoder in a local directory, from its path in the hub's cache and its ``config.json``.

    The configuration names where its weights came from (``_name_or_path``); a shape must agree with it. Without such a
    name the shape alone decides where one entry of ``KNOWN`` has it. A classifier was trained on something in between,
    whatever its configuration says of its origin.
    """
    snapshot = _SNAPSHOT.search(path)
    if snapshot:
        return named("/".join(snapshot.groups()))
    shape, between = shape_of(config), _between(config)
    origin = config.get("_name_or_path")
    if isinstance(origin, str) and origin:
        found = named(origin)
        if KNOWN.get(found.name) == shape:
            return Encoder(found.name, found.trained_on or between)
    alike = [name for name, known in KNOWN.items() if known == shape]
    return Encoder(alike[0] if len(alike) == 1 else path if "/" in path else f"./{path}", between)


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """The shape that a ``config.json`` describes; None if it does not."""

    found = [next((config[name] for name in names if isinstance(config.get(name), int)), None) for names in _SIZES]
    family = config.get("model_type")
    layers, width, vocabulary = found
    if not isinstance(family, str) or layers is None or width is None or vocabulary is None:
        return None
    return Shape(family, layers, width, vocabulary)


def facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a ``config.json`` what ``in_directory`` reads; manifests keep it, for the directory may be gone."""
    return {name: config[name] for name in _FACTS if config.get(name) is not None}


def _between(config: Mapping[str, Any]) -> tuple[str, ...]:
    task = config.get("finetuning_task")
    if isinstance(task, str) and task:
        return (task.casefold(),)
    classes = config.get("architectures") or ()
    return (UNNAMED,) if any(str(one).endswith("ForSequenceClassification") for one in classes) else ()


def between_phases(phases: Mapping[str, Mapping[str, Any]], task: str) -> tuple[str, ...]:
    """Labelled tasks other than ``task`` on which a method trains the encoder that its last phase starts from.

    Args:
        phases: name -> ``start`` and ``data`` of a phase, in their order.
    """
    trained: dict[str, tuple[str, ...]] = {"checkpoint": ()}
    for name, phase in phases.items():
        other = phase["data"]["task"] if phase["data"]["labels"] else None
        trained[name] = (*trained[phase["start"]], *([other] if other not in (None, task) else []))
    return list(trained.values())[-1]


# ------------------------------------------------------------------------------- tasks that encoders have seen before


class SeenConfig(StrictModel):
    """Training data of some encoders."""

    encoders: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    source: str = Field(min_length=1, description="who says so")
    tasks: dict[Name, str] = Field(min_length=1, description="task -> the data set as the source calls it")


class Contamination(StrictModel):
    """The whole file: what is known of the encoders' training data."""

    trained_on: dict[Name, SeenConfig] = Field(default_factory=dict)

    def of(self, encoder: str, names: Iterable[str]) -> dict[str, str]:
        """Tasks or sets among ``names`` that ``encoder`` (``model.name``) has seen -> as what, and who says so."""
        entries = [entry for entry in self.trained_on.values() if encoder in entry.encoders]
        first = {name: next((e for e in entries if name in e.tasks), None) for name in names}
        return {name: f"{entry.tasks[name]} ({entry.source})" for name, entry in first.items() if entry is not None}


def read_contamination(root: Path) -> Contamination:
    """Read the table that the package ships, and over it that of the project at ``root``, where there is one.

    Raises ConfigError when a file is wrong.
    """
    trained_on: dict[str, SeenConfig] = {}
    for path in (shipped.FOLDER / CONTAMINATION, Path(root) / CONTAMINATION):
        if path.is_file():
            table, problems = validate(Contamination, load_yaml(path, Path(root)))
            if table is None:
                raise ConfigError(problems)
            trained_on |= table.trained_on
    return Contamination(trained_on=trained_on)


def sentences(encoder: str, task: str, seen: Mapping[str, str], sets: Iterable[str]) -> list[str]:
    """Return warnings about ``task``, which is evaluated on ``sets``; nothing where the encoder saw none of them."""
    found = []
    if task in seen:
        found.append(f"{encoder} was trained on {seen[task]}: scores on {task} are not those of few labels alone")
    for name in sets:
        if name in seen and name != task:
            found.append(
                f"{encoder} was trained on {seen[name]}: for it the set {name}, which judges {task}, is not out of "
                "distribution"
            )
    return found

"""Runs methods on tiny encoders without DVC, stores or files: the harness of method tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from regft_core.contract import laws
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.data.prompts import Prompt, Reading
from regft_core.hooks import compose
from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Declares, Handed, MainPass, Setting
from regft_core.hooks.registry import discover
from regft_core.models.load import load_classifier, load_tokenizer
from regft_core.models.source import ModelSource, resolve_model
from regft_core.rng import derive
from regft_core.schema import DropoutConfig
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.training.loop import Loop
from regft_core.training.stack import Stack
from regft_core.training.step import BatchStream, FitData, Step
from regft_core.training.trainee import Trainee
from tests.tiny import EMBEDDERS, scratch_folder, tiny_model_dir

STILL = DropoutConfig(hidden=0.0, attention=0.0)
same = laws.same
WORDS = ("good bad film story plot actor scene very not quite dull bright slow fast a the is was").split()  # noqa: SIM905
TRAINING = TrainingConfig(epochs=2, batch_size=4, learning_rate=1e-3, warmup_ratio=0.1)
#: Families of different make: token types, padding on the left, relative places, two stacks, norms before blocks.
MAKES = ("bert", "xlnet", "deberta-v2", "bart", "modernbert")
NO_STEPS = TRAINING.model_copy(update={"epochs": 0})


@lru_cache(maxsize=32)
def source_of(architecture: str, masked_lm: bool = False) -> ModelSource:
    """A tiny random checkpoint of ``architecture``, made once per test session; embedders have no masked-LM head."""
    masked_lm = masked_lm and architecture not in EMBEDDERS
    folder = tiny_model_dir(scratch_folder(), architecture, masked_lm=masked_lm)
    return resolve_model(EncoderConfig(name=str(folder)), Path("/"))


@lru_cache(maxsize=32)
def tokenizer_of(source: ModelSource) -> Any:
    return load_tokenizer(source)


@lru_cache(maxsize=64)
def loaded(source: ModelSource, **options: Any) -> Any:
    """A classifier to copy: copying one is several times faster than loading it."""
    return load_classifier(source, **options)


def examples(count: int, *, pair: bool = False, kind: str = "classification", labels: int = 2) -> list[Example]:
    """Deterministic examples of varying length; the label depends on the words."""
    rows = []
    for i in range(count):
        length = 3 + (i * 7) % 9
        words = [WORDS[(i * 5 + j * (3 + i % 4)) % len(WORDS)] for j in range(length)]
        second = " ".join(reversed(words[: 2 + i % 3])) if pair else None
        score = sum(map(len, words))
        label: int | float = float(score % 11) / 2 if kind == "regression" else score % labels
        rows.append(Example(idx=str(i), text=" ".join(words), text_pair=second, label=label))
    return rows


#: One word of the tiny vocabulary for each label.
LABEL_WORDS = ("good", "bad", "old", "new", "red", "blue")


def prompt_of(stack: Sequence[compose.Entry], labels: int, pair: bool, *, at_mask: bool | None = None) -> Prompt | None:
    """The prompt of a phase whose model answers at a mask; None where it does not."""
    answering = [entry.declares for entry in compose.active(stack) if entry.declares.answers_at_mask]
    if not (bool(answering) if at_mask is None else at_mask):
        return None
    template = "{text} [MASK] , {text_pair}" if pair else "{text} it was [MASK] ."
    return Prompt(template, LABEL_WORDS[:labels], any(declares.demonstration_sets for declares in answering))


#: A regulariser by name (or a class of the test's own) with its options as a YAML gives them.
Listed = tuple[str | type[Regulariser], dict[str, Any]]


def entries(regularisers: Sequence[Listed]) -> list[compose.Entry]:
    """Validated (class, options) pairs from names (or classes) and option dictionaries."""
    registry = discover()
    classes = [(registry[given] if isinstance(given, str) else given, options) for given, options in regularisers]
    return [compose.Entry(cls, cls.Config.model_validate(options)) for cls, options in classes]


def declaring(name: str, hooks: Mapping[str, Callable[..., Any]] | None = None, **fields: Any) -> type[Regulariser]:
    """A regulariser that declares these fields and has these hooks, functions that are called as the hooks are."""
    declared = Declares(**fields)
    members = {"name": name, "declare": classmethod(lambda cls, options: declared)}
    return type(name.title(), (Regulariser,), {**members, **(hooks or {})})


def names_of(kind: str, labels: int) -> tuple[str, ...] | None:
    """The names of the labels of ``examples``."""
    return None if kind == "regression" else tuple(f"label_{i}" for i in range(labels))


def setting_of(
    training: TrainingConfig, kind: str, labels: int, seed: int, phase: str, final: bool | None = None, **read: Any
) -> Setting:
    """Return the setting of a phase over ``examples``, as regularisers see it."""
    names, last = names_of(kind, labels), phase == "finetune" if final is None else final
    values = (0.0, 5.0) if names is None else None
    of_task = {"kind": kind, "num_labels": len(names or "1"), "value_range": values}
    return Setting(**of_task, seed=seed, training=training, phase=phase, final=last, **read)


class Bench:
    """One model, one tokenised set and one stack of regularisers, ready to train or to inspect.

    ``handed`` is what earlier phases left, ``start`` weights to start from (plain names); with
    ``separately`` the texts of a pair are rows of their own, with ``grouped`` many tensors are acted on at
    once, as on a GPU; with ``at_mask`` the model answers at a mask also where no regulariser asks for it;
    ``reading`` puts an instruction before texts, or reads long ones in windows;
    ``source`` is another checkpoint than the tiny one. Nothing is shared between two
    benches, so two runs can be compared.
    """

    def __init__(
        self,
        regularisers: Sequence[Listed] = (),
        *,
        architecture: str = "bert",
        training: TrainingConfig = TRAINING,
        phase: str = "finetune",
        final: bool | None = None,
        kind: str = "classification",
        pair: bool = False,
        labels: int = 2,
        seed: int = 0,
        rows: int = 12,
        masked_lm: bool = False,
        handed: Mapping[str, Handed] | None = None,
        start: Mapping[str, torch.Tensor] | None = None,
        validation: bool = False,
        keyword_segment: str | None = None,
        attention: str = "sdpa",
        dropout: Any = None,
        pooling: str = "head",
        separately: bool = False,
        device: torch.device | str = "cpu",
        source: ModelSource | None = None,
        grouped: bool | None = None,
        max_length: int = 32,
        at_mask: bool | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.device = torch.device(device)
        if pooling == "head":
            pooling = EMBEDDERS.get(architecture, "head")  # they have no heads of their own
        self.source = source or source_of(architecture, masked_lm)
        self.tokenizer = tokenizer_of(self.source)
        stack_entries = entries(regularisers)
        settled, problems = compose.negotiate_dropout(stack_entries, dropout or training.dropout, None)
        assert not problems, problems
        owned = (entry.declares.optimizer for entry in stack_entries)
        optimizer = next(filter(None, owned), training.optimizer)
        self.training = training.model_copy(update={"dropout": settled, "optimizer": optimizer})
        given = examples(rows, pair=pair or separately, kind=kind, labels=labels)
        prompt = prompt_of(stack_entries, labels, pair, at_mask=at_mask)
        pooling = "mask" if prompt is not None else pooling
        rows_each = 2 if separately else 1
        self.encoded: Encoded = encode(
            given, self.tokenizer, max_length, rows_per_example=rows_each, prompt=prompt, reading=reading
        )
        names = names_of(kind, labels)
        shape = {"kind": kind, "labels": names, "pooling": pooling, "rows_per_example": self.encoded.rows_per_example}
        head_seed = derive(seed, "head")
        model = deepcopy(loaded(self.source, **shape, dropout=settled, head_seed=head_seed)).to(self.device)
        if attention != "sdpa":
            model.base_model.set_attn_implementation(attention)
        if settled == STILL and hasattr(model, "sequence_summary"):
            model.sequence_summary.last_dropout.p = 0.0  # XLNet's own, which no setting reaches
        read = {"keyword_segment": keyword_segment, "max_length": max_length, "reading": reading, "prompt": prompt}
        self.setting = setting_of(self.training, kind, labels, seed, phase, final, **read)
        self.stack = Stack(stack_entries, self.setting)
        self.trainee = Trainee(model, self.tokenizer, self.source, seed, phase, self.device)
        if grouped is not None:
            self.trainee.grouped = grouped
        if "checkpoint" in self.stack.anchors:
            self.trainee.drop_anchor("checkpoint")
        if start is not None:
            self.trainee.load_weights(start, head=True)
        if "start" in self.stack.anchors:
            self.trainee.drop_anchor("start")
        self.stack.prepare(self.trainee, handed or {})
        self.validation = self._stream(f"{phase}-validation") if validation else None
        times = self.stack.unlabelled
        self.unlabelled = self._stream(f"{phase}-unlabelled", times) if times else None
        self.stream = self._stream(phase, sampler=self.training.sampler)
        read = self.stream, self.validation, given, None, self.stack.transformer
        self.stack.fit(self.trainee, FitData(self.trainee, self.setting, *read))

    def _stream(self, name: str, times: int = 1, **options: Any) -> BatchStream:
        every = range(len(self.encoded))
        return BatchStream(self.encoded, self.trainee, self.setting, name, every, times=times, **options)

    @property
    def model(self) -> Any:
        return self.trainee.model

    @property
    def method(self) -> Any:
        """The only regulariser."""
        (method,) = self.stack.regularisers
        return method

    def inputs(self) -> dict[str, torch.Tensor]:
        """What the model reads of the first four examples."""
        inputs = self.stream.collate(range(4)).model_inputs()
        if not self.trainee.sites.token_types:
            inputs.pop("token_type_ids", None)
        return inputs

    def logits(self, model: Any = None) -> torch.Tensor:
        """Logits of the first four examples, as a prediction sees them; of another model on request."""
        with torch.no_grad():
            logits: torch.Tensor = (model or self.model).eval()(**self.inputs()).logits
        return logits

    def gradients(self, **options: Any) -> dict[str, torch.Tensor]:
        """The gradient that one more step leaves to the optimiser."""
        self.stack.backward(self.step(**options))
        return gradients(self)

    def terms(self, plain: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The task's loss of given outputs ``[B, K]`` with targets of 0, and what the only regulariser adds to it.

        ``other`` are the outputs of every further pass.
        """
        step = self.step()
        step.batch = replace(step.batch, labels=step.batch.labels.new_zeros(len(plain)))
        step.forward = lambda *args, **options: other  # type: ignore[method-assign]
        task = step.task_loss(plain)
        (regulariser,) = self.stack.regularisers
        terms = regulariser.terms(step, MainPass(plain, None, task))
        assert terms is not None
        return task, terms

    def loop(self, **options: Any) -> Loop:
        streams = self.stream, self.training, self.validation, self.unlabelled
        return Loop(self.trainee, self.stack, *streams, **options)

    def step(self, index: int = 0, **options: Any) -> Step:
        """A step on batch ``index`` outside the loop."""
        self.model.train()
        options = {"transformer": self.stack.transformer, "unlabelled": self.unlabelled, **options}
        return Step(self.trainee, self.setting, self.stream.batch(index), index=index, total=10, **options)

    def train(self, **options: Any) -> dict[str, torch.Tensor]:
        """Train to the end and return the plain weights."""
        self.loop(**options).train()
        self.stack.export(self.trainee)
        return self.trainee.plain_weights()


def only(name: str, **usual: Any) -> Callable[..., Bench]:
    """Return a maker of benches with one regulariser: it takes the options, and keywords beside the ``usual`` ones."""
    return lambda options=None, **more: Bench([(name, options or {})], **{**usual, **more})


def gradients(run: Bench) -> dict[str, torch.Tensor]:
    """Copies of the gradients as they are, of attached modules too."""
    return {name: p.grad.clone() for name, p in run.trainee.named_trainable() if p.grad is not None}


def masks_of(bench: Bench, share: float) -> dict[str, Handed]:
    """A mask over the layers that keeps about ``share``, as a phase called fisher would hand it over."""
    generator = torch.Generator().manual_seed(5)
    named = [(name, parameter.shape) for name, parameter in bench.trainee.named_raw() if ".layer." in name]
    masks = {f"fisher.mask/{name}": torch.rand(shape, generator=generator) < share for name, shape in named}
    return {"fisher": Handed("key", masks)}


def watched(step: Step, look: Callable[[Any], Any] = lambda output: None) -> list[tuple[Any, ...]]:
    """(name, draw, batch, what ``look`` gives of its output) of every pass that the step runs from now on."""
    passes: list[tuple[Any, ...]] = []
    forward = step.forward

    def watching(name: str = "main", *, draw: int | str = 0, batch: Any = None, **more: Any) -> Any:
        output = forward(name, draw=draw, batch=batch, **more)
        passes.append((name, draw, batch, look(output)))
        return output

    step.forward = watching  # type: ignore[method-assign]
    return passes


def calls_of(owner: Any, name: str, look: Callable[..., Any]) -> list[Any]:
    """What ``look`` gives of the arguments of every call of a method of ``owner`` from now on."""
    seen: list[Any] = []
    original = getattr(owner, name)
    setattr(owner, name, lambda *given: (seen.append(look(*given)), original(*given))[1])
    return seen


def close(found: Mapping[str, Any], expected: Mapping[str, Any], rtol: float = 1e-4, atol: float = 1e-6) -> bool:
    """Whether two gradients or sets of weights agree; what is in one alone must be 0."""
    pairs = {name: (found.get(name), expected.get(name)) for name in {*found, *expected}}
    return all(
        not (a if b is None else b).any() if a is None or b is None else torch.allclose(a, b, rtol=rtol, atol=atol)
        for a, b in pairs.values()
    )


def changed(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> set[str]:
    """Names of the tensors that differ."""
    return {name for name in before if not torch.equal(before[name], after[name])}


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)

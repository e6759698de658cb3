"""Linear heads on every layer, on other tasks (HyPe, Yuan et al. 2023, section 5.4, C.2 and figure 3).

The encoder stays as fine-tuning left it. Per task of ``tasks`` and layer, a newly drawn linear head is trained on the
summary token's vector ([CLS]): learning rate 0.001, 3 epochs, batches of 16. It learns from the task's training rows
and is evaluated with the task's metric on its development set. The paper's target tasks are MRPC, STS-B, RTE and CoLA,
for encoders fine-tuned on SST-2. ``rows`` and ``test_rows`` limit both, as the paper does not: ``rows: null``.

Where the paper is silent: AdamW without weight decay, at a constant rate; no dropout; the task's own loss. Heads are
drawn from N(0, 0.02) with biases of 0. All heads of a seed and task see the same rows in the same order.

Ours: ``pretrained`` is the encoder as it was loaded, under the same heads. ``pooling: mean`` reads the tokens' mean.
Pairs that are encoded separately give both vectors with their difference and product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from regft_core import metrics
from regft_core.evaluate.analysis_result import RUN, Findings, Plot, Table, Unfit
from regft_core.kinds import find
from regft_core.lazy import np, torch
from regft_core.rng import derive
from regft_core.schema import Name, StrictModel

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.encode import Encoded
    from regft_core.data.examples import Example
    from regft_core.evaluate.evaluated import EvaluatedRun, OtherRows

DESCRIPTION = "what linear heads on every layer learn of other tasks (HyPe, figure 3)"
KINDS = ("classification", "regression")
NEEDS_MODEL = True
SCORES = True
TASKS = "tasks"


class Config(StrictModel):
    tasks: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] = Field(
        description="files of pipelines/tasks that heads are trained on"
    )
    rows: int | None = Field(1000, ge=2, description="training rows of a head; null (paper): all")
    test_rows: int | None = Field(1000, ge=2, description="rows of the development set; null (paper): all")
    learning_rate: float = Field(1e-3, gt=0, description="of AdamW")
    epochs: int = Field(3, ge=1, description="over the training rows")
    batch_size: int = Field(16, ge=1, description="rows of a step")
    pooling: Literal["cls", "mean"] = Field("cls", description="the family's summary token, or the mean over tokens")


def run(run: EvaluatedRun) -> Findings:
    rows: list[tuple[str, int, float, float]] = []
    scalars: dict[str, float] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for task in dict.fromkeys(run.options.tasks):
        other = run.rows_of(task)
        train = drawn(other.examples, run.options.rows, run, f"{task}.train")
        test = drawn(other.dev, run.options.test_rows, run, f"{task}.dev")
        if min(len(train), len(test)) < 2:
            raise Unfit(f"task '{task}' has {len(train)} training rows and {len(test)} to judge by, too few for a head")
        own, before = (
            judged(run, other, features(run, model, train), train, features(run, model, test), test)
            for model in (run.trained.model, run.trained.pretrained)
        )
        rows += [(task, layer, value, before[layer]) for layer, value in enumerate(own)]
        best = min(own) if metrics.find(other.task["primary"]).lower_is_better else max(own)
        found = {f"{task}.best": best, f"{task}.mean": sum(own) / len(own), f"{task}.last": own[-1]}
        found |= {f"{task}.last_pretrained": before[-1]}
        ranges |= dict.fromkeys(found, metrics.find(other.task["primary"]).range)
        scalars |= found
    plot = Plot("layer", "score", ("task",), "pretrained")
    table = Table(("task", "layer", "score", "pretrained"), tuple(rows), keys=2, plot=plot)
    return Findings({RUN: scalars}, {RUN: {"probes": table}}, ranges)


def drawn(examples: Sequence[Example], limit: int | None, run: EvaluatedRun, stream: str) -> list[Example]:
    """All examples, or ``limit`` of them drawn with the run's seed, the same for all arms."""
    order = np.random.default_rng(derive(run.seed, "layer_probes.rows", stream)).permutation(len(examples))
    return [examples[int(index)] for index in order[:limit]]


def features(run: EvaluatedRun, model: Any, examples: Sequence[Example]) -> Tensor:
    """[layers, n, F]: a vector per layer and example, in the order of ``examples``, on the model's device."""
    from regft_core.evaluate.hidden import layer_states, pooled

    encoded: Encoded = run.trained.encode(examples)
    order: list[Tensor] = []
    vectors: list[Tensor] = []
    for batch in run.trained.batches(encoded):
        order.append(batch.indices)
        layers = layer_states(model, batch)
        vectors.append(torch.stack([pooled(model, states, batch, run.options.pooling) for states in layers]))
    return torch.cat(vectors, dim=1)[:, torch.cat(order).argsort()]


def judged(
    run: EvaluatedRun,
    other: OtherRows,
    train: Tensor,
    learned: Sequence[Example],
    test: Tensor,
    judging: Sequence[Example],
) -> list[float]:
    """Score of the head of every layer on the rows that judge it.

    ``train`` and ``test`` are states ``[layers, rows, F]``.
    """
    kind = find(other.task["kind"])
    outputs = len(kind.output_names(other.task["labels"]))
    labels = [example.label for example in learned]
    scale = kind.target_scale(labels)
    targets = labels if scale is None else [scale.learned(label) for label in labels]
    weight, bias = trained_heads(train, kind.label_tensor(targets), outputs, kind, run, other)
    logits = torch.baddbmm(bias, test, weight).cpu().numpy()
    logits = logits if scale is None else scale.in_units(logits)
    gold = np.asarray([one.label for one in judging], dtype=kind.dtype)
    return [other.score(gold, own) for own in logits]


def trained_heads(
    vectors: Tensor, labels: Tensor, outputs: int, kind: Any, run: EvaluatedRun, other: OtherRows
) -> tuple[Tensor, Tensor]:
    """Weights [layers, F, K] and biases [layers, 1, K] of the heads of all layers, trained side by side.

    Their losses are summed, so that no head sees another's gradient, and AdamW moves every entry by itself.
    """
    options, (layers, n, width) = run.options, vectors.shape
    generator = torch.Generator().manual_seed(derive(run.seed, "layer_probes.heads", other.task["task"]) % 2**63)
    one = torch.randn((width, outputs), generator=generator) * 0.02  # of every layer: only what it reads differs
    weight = one.to(vectors.device).repeat(layers, 1, 1).requires_grad_(True)
    bias = torch.zeros((layers, 1, outputs), device=vectors.device, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=options.learning_rate, weight_decay=0.0)
    labels = labels.to(vectors.device)
    with torch.enable_grad():
        for _ in range(options.epochs):
            order = torch.randperm(n, generator=generator).to(vectors.device)
            for rows in order.split(options.batch_size):
                optimizer.zero_grad()
                logits = torch.baddbmm(bias, vectors[:, rows], weight)
                torch.stack([kind.task_loss(own, labels[rows]) for own in logits]).sum().backward()
                optimizer.step()
    return weight.detach(), bias.detach()

"""A linear head that is solved, not stepped: linear probing, and the first half of LP-FT (Kumar et al., ICLR 2022).

The encoder is frozen; the last linear of the head is fitted to the phase's rows on the features that it
receives in evaluation mode: multinomial logistic regression (one label against the rest where an example has
several), or ridge regression for a value. The strength of
the L2 penalty comes from cross-validation inside these rows. A later phase may fine-tune from there (LP-FT).
``head: package`` fits the head of the setfit package (1.2.0) instead: scikit-learn's ``LogisticRegression()`` on the
features as they are, so C = 1, lbfgs, at most 100 iterations. The package reads the vectors of the checkpoint's own
pipeline: means over tokens, scaled to length 1 where it ends with ``Normalize`` (both packaged encoders do). That is
``pooling: unit_mean`` or ``mean``. Given the same weights and rows, its answers are the package's
(``tests/official/test_setfit.py``).

Decisions:
- Kumar et al. also solve the probe by logistic regression (their head search is over the strength, on a
  development set; here inside the training rows, as no other rows are given).
- a pooled encoder has one linear, so the fit is exact; in a family's own head everything before the last
  linear keeps the weights that it was drawn or pretrained with.
- cross_validated: the best decade of strength, then half decades about it (benchmarks/README.md, "Measured earlier").
  Features are centred and scaled by one number for the fit, each of the four parts of a pair's features by its own;
  both are folded into the weights: the exported model is plain. Standardised one by one, features that hardly vary
  would get weights from which fine-tuning diverges.
- a class without a row is never predicted; the row of a class that has no other is in every fit. Both are marked.
- ``decision: metric`` fits offsets of the logits (``training/linear_solution.py``). They are stored beside the weights,
  so probabilities stay as they are, and count where no step follows.
- features are computed in fp32 whatever the precision of training is.
- steps of the phase, if there are any, train this linear alone. ``training: {epochs: 0}`` takes the solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Cost, Declares, Description, Handed, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import DECISION, FitData, Tensor, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.kinds._decision import Decision
from regft_core.lazy import torch
from regft_core.training.linear_solution import (
    classify_as_setfit,
    classify_linearly,
    decision_of,
    regress_linearly,
    rows_of,
)
from regft_core.training.logistic import solve


class LinearHeadConfig(StrictModel):
    head: Literal["cross_validated", "package"] = Field(
        "cross_validated",
        description="how it is fitted; package: as the setfit package does, by logistic regression with C = 1 on the "
        "features as they are",
    )
    decision: Literal["metric", "largest"] = Field("metric", description=DECISION)
    labels: Literal["own", "permuted"] = Field("own", description="permuted: in random order (a control)")


class LinearHead(Regulariser):
    name = "linear_head"
    Config = LinearHeadConfig
    off = None
    sources = {
        "head": "ours: a strength chosen on the rows suits any encoder; package reproduces SetFit",
        "decision": "ours: what is judged is what is optimised",
        "labels": "ours: own is the method, permuted its control",
    }

    @classmethod
    def declare(cls, options: LinearHeadConfig) -> Declares:
        return Declares(
            edits=("weights",),
            edit_order=100,  # the features are those of the encoder as every other edit has left it
            freezes_encoder=True,
            fits_decision=options.decision == "metric" and options.head == "cross_validated",
            description=Description(
                fit_cost=Cost(1, 0),  # the features; the solver reads nothing else
                refused={"mask": "it solves for the last linear of a head, and words at a mask have none of their own"},
            ),
        )

    @classmethod
    def check_options(cls, options: LinearHeadConfig, phase: Phase) -> list[str]:
        return reads_labels(phase)

    @classmethod
    def check_task(cls, options: LinearHeadConfig, task: TaskConfig) -> list[str]:
        if options.head == "package" and not find(task.kind).has_labels:
            return ["head: package is a logistic regression, which gives no values; use head: cross_validated"]
        return []

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self._name = trainee.output_layer()
        trainee.model.requires_grad_(False)
        for parameter in self._linear().parameters():
            parameter.requires_grad_(True)

    def _linear(self) -> torch.nn.Linear:
        return self.trainee.model.get_submodule(self._name)  # type: ignore[return-value]

    def fit(self, trainee: Trainee, data: FitData) -> None:
        features, labels = self.features(data)
        if self.options.labels == "permuted":
            generator = trainee.generator("linear_head.permutation")
            order = torch.randperm(len(labels), generator=generator, device=trainee.device)
            labels = labels[order.to(labels.device)]
        package, kind = self.options.head == "package", find(self.setting.kind)
        features = features if package else features.double()
        rows = rows_of(self.name, data, features.numpy(), labels.numpy())
        parts = getattr(trainee.model, "parts", (1.0,))  # a family's own head reads one vector
        if not kind.has_labels:
            solution = regress_linearly(rows, parts)
        else:
            solution = solve(kind, rows, classify_as_setfit if package else partial(classify_linearly, parts=parts))
        linear = self._linear()
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(solution.weight))
            linear.bias.copy_(torch.from_numpy(solution.bias))
        self.marks, self._decision = solution.notes, decision_of(self.setting, solution.left_out, rows.targets)
        self.diagnostics.log("linear_head.strength", 0, solution.strength)

    def decision(self) -> Decision | None:
        return self._decision

    def features(self, data: FitData) -> tuple[Tensor, Tensor]:
        """Return the input of the linear for every row in evaluation mode, [n, d], and the labels [n]; on the CPU.

        Raises ModelError when the logits are not this linear's map of what it receives.
        """
        model, linear = self.trainee.model, self._linear()
        batches, features = [], []
        for batch, rows, logits in data.received(self._name):
            mapped = linear.weight.detach() @ rows.T + linear.bias.detach()[:, None]
            if rows.shape[0] != logits.shape[0] or not torch.allclose(mapped.T, logits, atol=1e-3, rtol=1e-3):
                raise ModelError(
                    "head-not-linear",
                    f"linear_head: the logits of {type(model).__name__} are not a linear map of what "
                    f"{self._name} receives, so no head can be solved for; use model: {{pooling: mean}}",
                )
            features.append(rows.float().cpu())
            batches.append(batch)
        order = data.places(batches)
        return torch.cat(features)[order], torch.cat([batch.labels.cpu() for batch in batches])[order]

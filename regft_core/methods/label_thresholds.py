"""A threshold for each label of a multi-label task, fitted on rows that the phase set aside.

Trained on few rows, a rare label seldom reaches a probability of 0.5. After the last step each label gets the threshold
with the largest F1 on the share of the training rows that was never trained on (``data.split``). Its log odds are
subtracted from the bias of the head's last linear: the run's model, its export and its predictions then answer by 0.5,
and a reported probability of 0.5 is the threshold. No set that judges runs is read.

Decisions:
- candidates lie half way between neighbouring logits; of equal F1 the one nearest to 0.5 wins.
- a label that no row of the share has keeps 0.5. The result is marked with it.
- ``fit: all`` goes by the F1 of all decisions together: for shares of few rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Description, Flip, Handed, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import FitData, Trainee, is_last, reads_labels
from regft_core.kinds import find
from regft_core.lazy import Array, np, torch


class LabelThresholdsConfig(StrictModel):
    fit: Literal["label", "all", "none"] = Field(
        "label", description="one threshold for each label, or for all together; none: 0.5 (a control)"
    )


class LabelThresholds(Regulariser):
    name = "label_thresholds"
    Config = LabelThresholdsConfig
    off = {"fit": "none"}
    controls = {"half": Flip({"fit": "none"}, "the same rows are set aside, and every threshold stays at 0.5")}
    sources = {"fit": "ours: a threshold a label, the usual choice for F1 over labels"}

    @classmethod
    def declare(cls, options: LabelThresholdsConfig) -> Declares:
        return Declares(
            active=options.fit != "none",
            edit_order=200,
            validation_share=True,
            description=Description(
                refused={"mask": "it moves the bias of a head, and words at a mask have none of their own"}
            ),
        )

    @classmethod
    def check_options(cls, options: LabelThresholdsConfig, phase: Phase) -> list[str]:
        problems = [*is_last(phase), *reads_labels(phase)]
        if phase.training.epochs == 0:
            problems.append("its thresholds are fitted after the last step, and the phase takes none; give it epochs")
        return problems

    @classmethod
    def check_task(cls, options: LabelThresholdsConfig, task: TaskConfig) -> list[str]:
        kind = find(task.kind)
        if kind.has_labels and not kind.one_label:
            return []
        return [f"it fits thresholds of several labels, and an example of a {task.kind} task has one answer"]

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self._head = trainee.output_layer()

    def fit(self, trainee: Trainee, data: FitData) -> None:
        """Learns nothing; remembers the rows that are set aside."""
        self._data = data

    def finish(self, trainee: Trainee) -> None:
        logits, labels = self._answers()
        present = find(self.setting.kind).indicators(labels, logits.shape[1])
        if self.options.fit == "all":
            shifts = np.full(logits.shape[1], threshold(logits.ravel(), present.ravel()))
        else:
            shifts = np.asarray([threshold(own, has) for own, has in zip(logits.T, present.T, strict=True)])
            if absent := int((~present.any(axis=0)).sum()):
                self.marks = [
                    f"label_thresholds: no row of those set aside has {absent} of {len(shifts)} labels; they keep 0.5"
                ]
        bias = trainee.model.get_parameter(f"{self._head}.bias")
        with torch.no_grad():
            bias.sub_(torch.from_numpy(shifts).to(bias))
        for k, shift in enumerate(shifts.tolist()):
            self.diagnostics.log(f"label_thresholds.{k}", 0, float(1 / (1 + np.exp(-shift))))

    def _answers(self) -> tuple[Array, Array]:
        """Logits [n, K] and labels [n] of the rows that are set aside, as evaluation computes them."""
        precision = self.setting.training.precision
        answers = list(self._data.answers(aside=True, precision=precision))
        logits = torch.cat([own.double().cpu() for _, own in answers])
        return logits.numpy(), torch.cat([batch.labels.cpu() for batch, _ in answers]).numpy()


def threshold(logits: Array, present: Array) -> float:
    """The logit above which [n] ``logits`` are answered with yes for the largest F1 against [n] ``present``.

    0 where nothing is present. Of equal F1 the candidate nearest to 0.
    """
    if not present.any():
        return 0.0
    order = np.sort(np.unique(logits))
    candidates = np.concatenate([[0.0, order[0] - 1.0], (order[1:] + order[:-1]) / 2])

    def f1(above: float) -> float:
        claimed = logits > above
        return float(2 * (claimed & present).sum() / (claimed.sum() + present.sum()))

    return float(min(candidates, key=lambda above: (-f1(above), abs(above))))

"""What was tried before the runs: trials of each arm, what was chosen, what fewer trials would have given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from regft_core import metrics
from regft_core.report.model import TunedArm
from regft_core.report.read_grid import BlockData, CellData
from regft_core.runs.results.records import Tuned
from regft_core.settings.provenance import described
from regft_core.statistics.expected_max import expected_max_curve


def tuned_arms(data: Sequence[BlockData]) -> tuple[TunedArm, ...]:
    """Every arm of the blocks in which anything was tuned; empty when nothing was."""
    found = []
    for block in data:
        arms = [_arm(block, cell) for cell in block.cells.values()]
        if any(arm.trials for arm in arms):
            found += arms
    return tuple(found)


def warnings(arms: Sequence[TunedArm]) -> list[str]:
    """What must be read before the scores: unequal numbers of trials, a choice on the development set."""
    texts = []
    for block in dict.fromkeys(arm.block for arm in arms):
        own = [arm for arm in arms if arm.block == block]
        published = [arm.method for arm in own if arm.selection == "dev_as_published"]
        if published:
            texts.append(
                f"{block}: hyper-parameters of {', '.join(published)} were chosen on the development set that also "
                "judges them (as published); their scores on it are optimistic"
            )
        numbers = {arm.method: arm.trials for arm in own}
        if len(set(numbers.values())) > 1:
            listed = ", ".join(f"{method} {count}" for method, count in numbers.items())
            texts.append(f"{block}: methods were tuned with different numbers of trials ({listed})")
    return texts


def _arm(block: BlockData, cell: CellData) -> TunedArm:
    primary = block.described.primary
    tuned = [run.tuned for run in cell.finetune.runs if run.tuned]
    if not tuned:
        return TunedArm(block.name, cell.method, 0, 0, "", "", primary, (), (), 0.0)
    first = tuned[0]
    counted = Counter(described(one.values) for one in tuned)
    return TunedArm(
        block=block.name,
        method=cell.method,
        trials=len(first.trials),
        failed=sum(trial.score is None for one in tuned for trial in one.trials),
        selection=first.selection,
        per=first.per,
        metric=primary,
        chosen=tuple(counted.most_common()),
        curve=_curve(tuned, primary),
        seconds=sum(one.seconds for one in tuned) / len(tuned),
    )


def _curve(tuned: Sequence[Tuned], metric: str) -> tuple[tuple[int, float], ...]:
    """Expected best of 1 to all trials; only up to the number that finished for every seed."""
    sign = 1.0 if metrics.higher_is_better(metric) else -1.0
    scores = [[sign * trial.score for trial in one.trials if trial.score is not None] for one in tuned]
    most = min(map(len, scores))
    if not most:
        return ()
    curves = [expected_max_curve(values) for values in scores]
    return tuple((k, sign * sum(curve[k - 1] for curve in curves) / len(curves)) for k in range(1, most + 1))

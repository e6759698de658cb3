"""What judges an epoch, and how: to choose whose weights a run leaves (``training.checkpoint``), or to be shown.

``best_on_split`` sets a share of the training rows aside; ``best_on_dev_as_published`` takes the set that also judges
the finished run, as several papers do, and is marked; ``training.epoch_scores`` looks at that set and chooses nothing.
The code that is reachable from here is in the key of the runs whose epochs are judged, and of no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regft_core import metrics
from regft_core.data.batches import padding_of
from regft_core.evaluate.predict import predict
from regft_core.evaluate.score import SetInfo, evaluate_run

if TYPE_CHECKING:
    from regft_core.data.encode import Encoded
    from regft_core.data.examples import Example
    from regft_core.training.best import Judge
    from regft_core.training.trainee import Trainee


def judge(encoded: Encoded, examples: Sequence[Example], task: Mapping[str, Any], tokenizer: Any, device: str) -> Judge:
    """A judge by the task's primary metric on ``examples``, which ``encoded`` holds in the same order.

    Args:
        task: content of ``task.json``.
    """
    primary = task["primary"]
    padding = padding_of(tokenizer)
    sign = 1.0 if metrics.higher_is_better(primary) else -1.0
    info = SetInfo([example.label for example in examples], [str(number) for number in range(len(examples))])

    def score(trainee: Trainee) -> float:
        flags = [(module, module.training) for module in trainee.attached.modules()]
        trainee.attached.eval()
        try:
            logits = predict(
                trainee.model,
                encoded,
                device=device,
                pad_id=padding.pad_id,
                pad_token_type_id=padding.pad_token_type_id,
                padding_side=padding.side,
                kind=task["kind"],
            )
        finally:
            for module, flag in flags:
                module.training = flag
        found = evaluate_run({"judging": trainee.answers(logits)}, {"judging": info}, {**task, "metrics": [primary]})
        return sign * float(found.sets["judging"]["metrics"][primary])

    return score

"""Operations that the host starts in a step, counted on a CPU with many tensors acted on at once, as on a GPU.

    python benchmarks/operations.py [--methods vanilla weight_mixup weight_mixup_released]

24 layers as in bert-large, a thousandth of its size, in as many stacks and groups. A count is not a time: an operation
on a list of tensors counts as one (a GPU needs a kernel for some 20 million entries or some 40 tensors), a view not at
all. What torch does in one operation on a GPU, attention and dropout, may be several here, in every arm alike; hence
the column that counts only what a step has beyond as many plain passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cost
import gpu

from regft_core.models import mixing_together
from regft_core.training import two_level
from regft_core.training.trainee import Trainee

METHODS = ("vanilla", "weight_mixup", "weight_mixup_released")
#: A row of a weight has a 32nd of the entries that it has in bert-large, and there are a 32nd of the rows.
SMALLER = 32 * 32
DEEP = {"hidden_size": 32, "num_hidden_layers": 24, "num_attention_heads": 2, "intermediate_size": 128}


@dataclass(frozen=True)
class Count:
    """Operations of one step of a phase."""

    name: str
    passes: float
    names: Counter[str]

    @property
    def total(self) -> int:
        return self.names.total()


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Within the block models are trained as on a GPU, and stacks hold as many matrices as those of bert-large do."""
    original = Trainee.__post_init__

    def grouped(trainee: Trainee) -> None:
        original(trainee)
        trainee.grouped = True

    with (
        patch.object(Trainee, "__post_init__", grouped),
        patch.object(mixing_together, "STACK", mixing_together.STACK // SMALLER),
        patch.object(two_level, "GROUP", two_level.GROUP // SMALLER),
    ):
        yield


def counts(methods: list[str]) -> Iterator[Count]:
    """One count for each phase with steps, the first for plain fine-tuning; of a second step, which logs nothing."""
    with patch.dict(cost.SHAPES, deep=DEEP), tempfile.TemporaryDirectory() as folder, as_on_a_gpu():
        bench = cost.Bench(cost.checkpoint("deep", Path(folder)), cost.tokens(16, 16), 2, "cpu")
        known = cost.all_methods(cost.ROOT)
        for name in dict.fromkeys(["vanilla", *methods]):
            for phase, inputs in bench.phases(known[name]):
                loop = bench.loop(inputs)
                if loop is None:
                    continue
                cost.run_steps(loop, 1, loop.trainee.device)
                before = loop.done.forward_passes
                names = gpu.operations_by_name(loop)
                label = name if phase.name == "finetune" else f"{name} ({phase.name})"
                yield Count(label, loop.done.forward_passes - before, names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain: Count | None = None
    print("| arm (phase) | operations | passes | as many plain passes | beyond them | most of those |")
    print("|---|---|---|---|---|---|")
    for count in counts(options.methods):
        plain = plain or count
        expected = round(count.passes * plain.total)
        more = Counter({name: n - round(count.passes * plain.names[name]) for name, n in count.names.items()})
        most = ", ".join(f"{name} {n}" for name, n in more.most_common(6) if n > 0)
        shown = f"{count.total} | {count.passes:g} | {expected} | {count.total - expected:+d} | {most or '-'}"
        print(f"| {count.name} | {shown} |", flush=True)


if __name__ == "__main__":
    main()

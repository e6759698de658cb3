"""Zero-shot similarity: the cosine of two frozen embeddings, for tasks that ask how alike two texts are.

Each text goes through the encoder on its own; its embedding is the mean over its tokens (Sentence-BERT, Reimers
and Gurevych, EMNLP 2019). The cosine is mapped linearly to the task's range: ``lowest`` (0) to its smallest
value, 1 to its largest. Nothing is trained, and no training row is read: what is learned must beat this.

Decisions:
- a cosine below ``lowest`` falls below the range and is left there; correlations do not see the mapping at all.
- texts are truncated to ``model.max_length`` tokens each, or read in windows, whatever ``model.pairs`` says.
- after an earlier phase (post-training) the embeddings are those of the encoder that it left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from regft_core.data.examples import Example
from regft_core.hooks.base import Declares, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Tensor, Trainee
from regft_core.kinds import find
from regft_core.lazy import Array, torch


class ZeroShotSimilarityConfig(StrictModel):
    lowest: float = Field(0.0, ge=-1, lt=1, description="the cosine that means the smallest value of the range")


class ZeroShotSimilarity(Regulariser):
    name = "zero_shot_similarity"
    Config = ZeroShotSimilarityConfig
    off = None  # nothing is trained at any strength
    sources = {"lowest": "ours: the value at which two texts have nothing in common"}

    @classmethod
    def declare(cls, options: ZeroShotSimilarityConfig) -> Declares:
        return Declares(freezes_encoder=True)

    @classmethod
    def check_task(cls, options: ZeroShotSimilarityConfig, task: TaskConfig) -> list[str]:
        why = []
        if find(task.kind).has_labels:
            why.append(f"a similarity is a value, and a {task.kind} task asks for labels")
        if task.columns.text_pair is None:
            why.append("there is one text, and a similarity needs two")
        if not find(task.kind).has_labels and task.range is None:
            why.append("its YAML gives no 'range' to map the cosine to")
        return why

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """The range that cosines are mapped to; a task without one is refused."""
        ends = self.setting.value_range
        return {} if ends is None else {"range": torch.tensor(ends, dtype=torch.float64)}

    def predict(self, trainee: Trainee | None, kept: Mapping[str, Tensor], examples: Sequence[Example]) -> Array:
        assert trainee is not None
        first = self._embed(trainee, [example.text for example in examples])
        second = self._embed(trainee, [str(example.text_pair) for example in examples])
        cosine = torch.nn.functional.cosine_similarity(first, second)
        smallest, largest = kept["range"].tolist()
        return to_range(cosine, self.options.lowest, (smallest, largest)).unsqueeze(1).numpy()

    def _embed(self, trainee: Trainee, texts: Sequence[str]) -> Tensor:
        """Means [n, H] over the tokens of each text, on the CPU."""
        from regft_core.models.features import token_means

        rows = [Example(str(i), text, None, 0) for i, text in enumerate(texts)]
        places, vectors = list[int](), list[Tensor]()
        trainee.model.eval()
        means = token_means(trainee.model, trainee.features)
        with torch.inference_mode():
            for batch in trainee.batches(rows, self.setting):
                places += batch.host_indices
                vectors.append(means(batch))
            return torch.cat(vectors)[torch.tensor(places).argsort()]


def to_range(cosine: Tensor, lowest: float, value_range: tuple[float, float]) -> Tensor:
    """Of cosines ``[n]``: the line through (lowest, smallest value) and (1, largest value)."""
    smallest, largest = value_range
    return smallest + (cosine - lowest) / (1 - lowest) * (largest - smallest)

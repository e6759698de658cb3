"""The similarity against numbers worked out by hand, and against embeddings of texts one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regft_core.data.examples import Example
from regft_core.data.reading import Reading
from regft_core.hooks import compose
from regft_core.methods.zero_shot_similarity import to_range
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.tasks import BuiltinSource, ColumnsConfig, SplitsConfig, TaskConfig
from tests.methods.chain import method
from tests.methods.harness import TRAINING, Bench, entries, examples

NO_STEPS = TRAINING.model_copy(update={"epochs": 0})


def task(**changes: Any) -> TaskConfig:
    given: dict[str, Any] = {
        "kind": "regression",
        "source": BuiltinSource(kind="builtin", generator="cue_regression"),
        "splits": SplitsConfig(train="train", dev="dev"),
        "columns": ColumnsConfig(text="text", text_pair="text_pair"),
        "range": (0.0, 5.0),
        "metrics": ("pearson",),
        "primary": "pearson",
    }
    return TaskConfig(**{**given, **changes})


def test_the_mapping_by_hand() -> None:
    cosine = torch.tensor([1.0, 0.5, 0.0, -0.5])
    assert to_range(cosine, 0.0, (0.0, 5.0)).tolist() == [5.0, 2.5, 0.0, -2.5]
    assert to_range(cosine, -1.0, (1.0, 5.0)).tolist() == [5.0, 4.0, 3.0, 2.0]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "mpnet", "bart"])
def test_answers_are_cosines_of_single_texts(architecture: str) -> None:
    run = Bench(
        [("zero_shot_similarity", {})],
        architecture=architecture,
        kind="regression",
        pair=True,
        training=NO_STEPS,
        rows=4,
    )
    given = examples(9, pair=True, kind="regression")
    answers = run.stack.predict(run.trainee, {}, given)
    assert answers.shape == (9, 1)

    def embed(text: str) -> torch.Tensor:
        inputs = run.tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
        with torch.no_grad():
            tokens: torch.Tensor = run.model.eval().base_model(**inputs)[0][0]
        return tokens.mean(0)

    for row, example in zip(answers[:, 0], given, strict=True):
        u, v = embed(example.text), embed(str(example.text_pair))
        assert float(row) == pytest.approx(5 * float(u @ v) / float(u.norm() * v.norm()), abs=1e-4)


def test_embeddings_are_means_over_windows_behind_the_instruction() -> None:
    reading = Reading("the ", windows=2, stride=1)
    run = Bench(
        [("zero_shot_similarity", {})],
        **{"kind": "regression", "pair": True, "training": NO_STEPS, "pooling": "mean"},
        **{"max_length": 8, "reading": reading},
    )
    letters = "abcdefgh"  # 5 of them fit into a row
    answers = run.stack.predict(run.trainee, {}, [Example("0", " ".join(letters), "g o", 0.0)])

    def embed(text: str) -> torch.Tensor:
        inputs = run.tokenizer(f"the {text}", return_tensors="pt")
        with torch.no_grad():
            tokens: torch.Tensor = run.model.eval().base_model(**inputs)[0][0]
        return tokens.mean(0)

    u = (embed("a b c d e") + embed("d e f g h")) / 2
    v = embed("g o")
    assert float(answers[0, 0]) == pytest.approx(5 * float(u @ v) / float(u.norm() * v.norm()), abs=1e-4)


def test_equal_texts_are_the_largest_value_and_long_ones_are_cut() -> None:
    from dataclasses import replace

    run = Bench([("zero_shot_similarity", {})], kind="regression", pair=True, training=NO_STEPS)
    one = examples(1, pair=True)[0]
    long = " ".join(["good"] * 40)
    same = replace(one, text="a good film", text_pair="A good film")
    cut = replace(one, text=long, text_pair=long + " bad slow")
    assert run.stack.predict(run.trainee, {}, [same, cut])[:, 0].tolist() == pytest.approx([5.0, 5.0], abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "classification", "labels": ("a", "b"), "range": None, "metrics": ("accuracy",)}, "asks for labels"),
        ({"columns": ColumnsConfig(text="text")}, "needs two"),
        ({"range": None}, "gives no 'range'"),
    ],
)
def test_other_tasks_are_refused_by_name(changes: dict[str, Any], why: str) -> None:
    if "metrics" in changes:
        changes = {**changes, "primary": changes["metrics"][0]}
    stack = entries([("zero_shot_similarity", {})])
    given = method("zero_shot_similarity").finetune
    encoder = EncoderConfig(name="minilm")
    assert compose.check_phase(stack, given, TRAINING, task(), encoder) == []
    problems = compose.check_phase(stack, given, TRAINING, task(**changes), encoder)
    assert len(problems) == 1
    assert problems[0].startswith("'zero_shot_similarity' on this task: ")
    assert why in problems[0]

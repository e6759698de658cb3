"""Other forms of a model: ONNX, and layers in eight bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regft_core.errors import ExportMismatch, ModelError
from regft_core.models import onnx, precision
from regft_core.models.onnx import FILE, PACKAGES, card_section, logits_of, require_onnx, write_onnx
from regft_core.models.precision import Int8Linear, in_precision
from tests.errors import raises_code
from tests.methods.harness import MAKES
from tests.skips import needs
from tests.tiny import tiny_tokenizer


@pytest.fixture
def packages() -> None:
    for package in PACKAGES:
        needs(package, "onnx")


def batch(rows: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 40, (rows, tokens), generator=torch.Generator().manual_seed(rows))
    mask = torch.ones_like(ids)
    mask[1, tokens // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(("pooling", "rows"), [("head", 1), ("mean", 2)])
def test_the_graph_takes_other_rows_than_those_it_was_traced_with(
    tmp_path: Path, load: Any, pooling: str, rows: int
) -> None:
    model = load("bert", pooling=pooling, rows_per_example=rows).model
    assert write_onnx(model, tmp_path, batch(4, 12)) < 1e-5
    other = batch(6, 23)
    with torch.no_grad():
        expected = model(**other).logits
    assert torch.allclose(logits_of(tmp_path / FILE, other), expected, atol=1e-5)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_code_of_the_card_gives_the_logits(tmp_path: Path, load: Any, family: str) -> None:
    model, tokenizer = load(family, pooling="mean").model, tiny_tokenizer(family)
    tokenizer.save_pretrained(tmp_path)
    gap = write_onnx(model, tmp_path, tokenizer(["good film", "a day"], return_tensors="pt", padding=True))
    code = card_section(gap, 2, tokenizer, paired=False).partition("```python")[2].partition("```")[0]
    command = [sys.executable, "-c", code + "print(logits.tolist())"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = model(**tokenizer(["a text", "another one"], return_tensors="pt", padding=True)).logits
    assert torch.allclose(torch.tensor(json.loads(done.stdout)), expected, atol=1e-5)


@pytest.mark.usefixtures("packages")
def test_a_graph_with_other_logits_is_refused(tmp_path: Path, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "logits_of", lambda path, batch: torch.full((4, 3), 9.0))
    with raises_code(ExportMismatch, "export-differs", "model.onnx"):
        write_onnx(load("bert").model, tmp_path, batch(4, 12))


def test_missing_packages_are_named_with_the_command_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "PACKAGES", ("onnx_that_is_nowhere",))
    with raises_code(ModelError, "package-missing", "onnx_that_is_nowhere", ".[onnx]"):
        require_onnx()


# ------------------------------------------------------------------------------------------ eight bits


#: Its attention multiplies by parameters that are in no linear layer.
REFUSED = {"xlnet"}


def test_a_layer_is_as_near_as_eight_bits_allow() -> None:
    torch.manual_seed(0)
    linear, inputs = torch.nn.Linear(64, 48), torch.randn(3, 5, 64) * torch.tensor([0.01, 1, 100])[:, None, None]
    with torch.no_grad():
        expected, found = linear(inputs), Int8Linear(linear)(inputs)
    assert found.shape == (3, 5, 48)
    # Each row has a scale of its own: the error is relative to it, however small it is.
    for row, other in zip(expected, found):
        assert (row - other).abs().max() < 0.02 * row.abs().max() + 1e-3
    by_hand = Int8Linear(torch.nn.Linear(2, 1, bias=False))
    by_hand.integers.copy_(torch.tensor([[127], [64]]))
    by_hand.scales.fill_(0.5)
    # The row (2, -1) has the scale 2/127 and the integers 127, -64 (63.5 to the even one).
    assert by_hand(torch.tensor([[2.0, -1.0]])).item() == pytest.approx((127 * 127 - 64 * 64) * 0.5 * 2 / 127)


@pytest.mark.parametrize("architecture", sorted({*MAKES, *REFUSED}))
def test_every_family_answers_in_int8_or_is_refused_by_name(
    load: Any, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "multiplies_int8", lambda: True)
    model = load(architecture).model
    ids = torch.randint(5, 40, (4, 12), generator=torch.Generator().manual_seed(0))
    if architecture == "bart":
        ids[:, -1] = model.config.eos_token_id
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.inference_mode():
        expected = model(**inputs).logits
        if architecture in REFUSED:
            with raises_code(ModelError, "precision-not-possible", "int8", architecture):
                in_precision(model, "int8", "cpu", "the export")
            return
        found = in_precision(model, "int8", "cpu", "the export")(**inputs).logits
    assert any(isinstance(module, Int8Linear) for module in model.modules())
    assert 0 < (found - expected).abs().max() < 0.1

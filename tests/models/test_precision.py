"""int8 products against fp32 ones, and families whose layers cannot take them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regft_core.errors import ModelError
from regft_core.models import precision
from regft_core.models.load import load_classifier
from regft_core.models.precision import Int8Linear, in_precision
from regft_core.models.source import resolve_model
from regft_core.schema import DropoutConfig
from regft_core.schema.encoder import EncoderConfig
from tests.errors import raises_code
from tests.methods.harness import MAKES
from tests.tiny import tiny_model_dir

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
    tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "multiplies_int8", lambda: True)
    source = resolve_model(EncoderConfig(name=str(tiny_model_dir(tmp_path, architecture))), tmp_path)
    model = load_classifier(source, kind="classification", labels=("a", "b"), dropout=DropoutConfig(), head_seed=0)
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

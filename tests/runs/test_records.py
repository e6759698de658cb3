"""Marks of a finished phase: what only the prepared model shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from regft_core.models.source import ModelSource, resolve_model
from regft_core.runs.phase import phase_record
from regft_core.schema.encoder import EncoderConfig
from tests.methods.chain import Runner, phase
from tests.methods.harness import source_of

#: Arms whose two passes differ by dropout alone.
COMPARING = [("r_drop", {}), ("r3f", {"scale": 0.0}), ("cutoff", {"ratio": 0.0})]


@pytest.fixture
def still(tmp_path: Path) -> ModelSource:
    """A checkpoint whose own configuration has no dropout (ModernBERT's is like that)."""
    folder = tmp_path / "still"
    shutil.copytree(source_of("bert").path, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return resolve_model(EncoderConfig(name=str(folder)), Path("/"))


def marks(source: ModelSource, name: str, options: dict[str, Any], **training: Any) -> list[str]:
    ran = Runner(source).run([phase([(name, options)], **training)], steps=1)["finetune"]
    found: list[str] = phase_record("finetune", ran.members[0])["marks"]
    return found


@pytest.mark.parametrize(("name", "options"), COMPARING)
def test_passes_that_nothing_tells_apart_are_marked(name: str, options: dict[str, Any], still: ModelSource) -> None:
    """The protocol keeps the checkpoint's dropout, so only the loaded model shows that there is none."""
    (mark,) = marks(still, name, options)
    assert (
        mark == f"{name}: this encoder runs without dropout, so its passes differ by the noise of others or not at all"
    )
    assert marks(source_of("bert"), name, options) == []


@pytest.mark.parametrize(("name", "options"), [("r3f", {}), ("cutoff", {}), ("hype", {}), ("lnsr", {})])
def test_passes_with_a_difference_of_their_own_are_not(name: str, options: dict[str, Any], still: ModelSource) -> None:
    assert marks(still, name, options) == []


def test_the_batches_of_a_step_are_counted() -> None:
    """A step over two batches takes twice as long, and passes are counted for each batch."""
    for accumulation in (1, 2):
        one = phase([], batch_size=2, accumulation=accumulation, max_steps=2)
        ran = Runner(source_of("bert")).run_phase(one, {})
        cost = phase_record("finetune", ran.members[0])["cost"]
        assert cost["batches_per_step"] == accumulation
        assert cost["forward_passes_per_step"] == 1

"""HyPe and TDT against the encoders that their authors published: loss and gradients of one step, all weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.methods.hype import Hype
from regft_core.methods.tdt import Tdt
from tests.methods.harness import STILL, Bench
from tests.official.releases import Release, agree, gradients, loaded, old_config

pytestmark = pytest.mark.slow

HYPE = Release("Yuanhy1997/HyPe", "73ad66554ce870d3c89429c90eb90ae8d990071f")
TDT = Release("lemon0830/TDT", "120dd53408a3394750833cfd5817e47c12009049")
LAYERS = [f"Bert{part}" for part in ("Embeddings", "SelfAttention", "SelfOutput", "Attention", "Intermediate")]
LAYERS += [f"Bert{part}" for part in ("Output", "Layer", "Encoder", "Pooler", "Model", "ForSequenceClassification")]


def one_step(bench: Bench) -> tuple[Any, float]:
    """The batch of a step and its loss; gradients are left in the model."""
    step = bench.step()
    return step.batch, float(bench.stack.backward(step))


class Draws:
    """``torch`` whose tensors of a GPU are those that were drawn here, one after the other."""

    def __init__(self, draws: list[Tensor]) -> None:
        given = iter(draws)
        drawn = SimpleNamespace(normal_=lambda: next(given), uniform_=lambda: next(given))
        self.cuda = SimpleNamespace(FloatTensor=lambda shape: drawn)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.mark.parametrize("position", ["between_layers", "within_layers", "both"])
@pytest.mark.parametrize("law", ["normal", "uniform_one_sided"])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_hype(law: str, position: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scale, draws, noise = 2.0**-7, [], Hype.noise

    def recorded(*given: Any) -> Tensor:
        found = noise(*given)
        draws.append(found / scale)  # exact: the scale is a power of two
        return found

    monkeypatch.setattr(Hype, "noise", recorded)
    options = {"distribution": law, "scale": scale, "position": position}
    bench = Bench([("hype", options)], dropout=STILL, kind=kind, attention="eager")
    config = bench.model.config
    batch, loss = one_step(bench)
    assert len(draws) == (4 if position == "both" else 2)
    given = {"torch": Draws(draws), "SequenceClassifierOutput": None}
    theirs = HYPE.definitions("hype_modeling_bert.py", LAYERS, given).BertForSequenceClassification(
        old_config(config, problem_type=None)
    )
    loaded(theirs, bench.model.state_dict())
    within = {"add_intermediate": position != "between_layers", "only_intermediate": position == "within_layers"}
    theirs.bert.encoder.add_noise_sampler(scale, "normal" if law == "normal" else "uniform", **within)
    output = theirs(**batch.model_inputs(), labels=batch.labels, return_dict=False)
    output[0].backward()
    agree(f"hype {law} {position} {kind}", (output[0], loss), gradients(theirs), gradients(bench.model))


@pytest.mark.parametrize("margin", [0.0, 2.0])
@pytest.mark.parametrize("labels", [2, 3])
def test_tdt(labels: int, margin: float) -> None:
    options = {"variant": "released", "margin": margin, "w_distill": 1.0, "w_rank": 2.0}
    bench = Bench([("tdt", options)], dropout=STILL, labels=labels, attention="eager")
    config = bench.model.config
    batch, loss = one_step(bench)
    released = TDT.definitions("TDT/transformers/modeling_bert.py", LAYERS)
    theirs = released.BertForSequenceClassification(old_config(config, m_rate=1.0, kl_rate=2.0, maxg=margin))
    # They write 0, which is padding in BERT's own vocabulary.
    theirs.bert.embeddings.word_embeddings.padding_idx = config.pad_token_id
    program = bench.stack.program
    assert isinstance(program, Tdt)
    unit = {f"bert.know_mask.0.{name}": parameter for name, parameter in program.unit.named_parameters()}
    loaded(theirs, {**bench.model.state_dict(), **unit})
    output = theirs(**batch.model_inputs(), labels=batch.labels)
    output[0].backward()
    own = gradients(bench.model) | {name: parameter.grad for name, parameter in unit.items()}
    agree(f"tdt {labels} {margin}", (output[0], loss), gradients(theirs), own)

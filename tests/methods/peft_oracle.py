"""The PEFT library as an oracle for adapters; tests that need it are skipped where it is not installed."""

from __future__ import annotations

import copy
from typing import Any

import torch

from regft_core.training.trainee import Trainee
from tests.extras import needs
from tests.methods.harness import source_of


def peft() -> Any:
    """The library, or a skip that says what to install."""
    return needs("peft", "peft")


def wrapped(model: Any, config: Any) -> Any:
    """A copy of the classifier under PEFT, in eval mode; the model itself is left as it is."""
    with torch.random.fork_rng(devices=[]):
        return peft().get_peft_model(copy.deepcopy(model), config).eval()


def bert_large(labels: int) -> Trainee:
    """A trainee with the shapes of BERT-large and no values in its encoder."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=labels
    )
    with torch.device("meta"):
        model = BertForSequenceClassification(config)
    return Trainee(model, None, source_of("bert"), 0, "finetune", torch.device("cpu"))


def trainable(trainee: Trainee) -> int:
    return sum(parameter.numel() for _, parameter in trainee.named_trainable())

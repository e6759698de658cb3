"""BERT."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "bert",
    stacks=(LayerStack("encoder", "encoder.layer", "attention.output"),),
    head=("classifier",),
    pooler="pooler",
    hidden_dropout=("hidden_dropout_prob", "classifier_dropout"),
    attention_dropout=("attention_probs_dropout_prob",),
    head_dropout=("classifier_dropout", "hidden_dropout_prob"),
    masked_lm_head=("cls",),
    finished_mask="global",
)

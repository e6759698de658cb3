"""ELECTRA."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "electra",
    stacks=(LayerStack("encoder", "encoder.layer", "attention.output"),),
    head=("classifier",),
    hidden_dropout=("hidden_dropout_prob", "classifier_dropout"),
    attention_dropout=("attention_probs_dropout_prob",),
    head_dropout=("classifier_dropout", "hidden_dropout_prob"),
    masked_lm_head=("generator_predictions", "generator_lm_head"),
    projections=("embeddings_project",),
    finished_mask="global",
)

"""ALBERT, whose layers share their weights."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "albert",
    # The layers are shared: each is called several times per forward pass (see sites.py).
    stacks=(LayerStack("encoder", "encoder.albert_layer_groups", "attention"),),
    pooler="pooler",
    hidden_dropout=("hidden_dropout_prob", "classifier_dropout_prob"),
    head_dropout=("classifier_dropout_prob", "hidden_dropout_prob"),
    masked_lm_head=("predictions",),
    projections=("encoder.embedding_hidden_mapping_in",),
    finished_mask="global",
)

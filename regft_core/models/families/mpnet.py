"""MPNet."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "mpnet",
    stacks=(LayerStack("encoder", "encoder.layer", "attention"),),
    hidden_dropout=("hidden_dropout_prob",),
    head_dropout=("hidden_dropout_prob",),
    masked_lm_head=("lm_head",),
    token_types=False,
    positions="after_padding",
    finished_mask="global",
)

"""ModernBERT: norms before each block, rotary positions, local attention."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "modernbert",
    stacks=(LayerStack("encoder", "layers", "mlp_norm", pre_norm=True),),
    pretrained_head=("head",),
    hidden_dropout=("embedding_dropout", "mlp_dropout", "classifier_dropout"),
    # One field for the attention probabilities and for the output of the attention block.
    attention_dropout=("attention_dropout",),
    head_dropout=("classifier_dropout",),
    masked_lm_head=("head", "decoder"),
    token_types=False,
    finished_mask="by_layer",
)

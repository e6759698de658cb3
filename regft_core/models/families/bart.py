"""BART, whose head reads the decoder."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "bart",
    stacks=(
        LayerStack("encoder", "encoder.layers", "self_attn_layer_norm"),
        LayerStack("decoder", "decoder.layers", "encoder_attn_layer_norm"),
    ),
    head=("classification_head",),
    hidden_dropout=("dropout", "activation_dropout", "classifier_dropout"),
    attention_dropout=("attention_dropout",),
    head_dropout=("classifier_dropout",),
    # Its decoder reads the input moved right by one token: what it gives at a position predicts the token there.
    masked_lm_head=("lm_head",),
    token_types=False,
    # The decoder looks to the left only: its last token is the one that has seen the whole text.
    summary="last",
    finished_mask="global",
)

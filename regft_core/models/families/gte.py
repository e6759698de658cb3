"""GTE, as transformers has it: layers ordered as BERT's, rotary positions, gated feed-forward blocks."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "gte",
    stacks=(LayerStack("encoder", "layers", "post_attention_layernorm"),),
    head=("classifier",),
    pooler="pooler",
    hidden_dropout=("hidden_dropout_prob", "classifier_dropout"),
    attention_dropout=("attention_probs_dropout_prob",),
    head_dropout=("classifier_dropout", "hidden_dropout_prob"),
    masked_lm_head=("lm_head",),
    finished_mask="global",
)

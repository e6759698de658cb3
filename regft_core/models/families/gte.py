"""GTE, as transformers has it: layers ordered as BERT's, rotary positions, gated feed-forward blocks."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "gte",
    stacks=(LayerStack("encoder", "layers", "post_attention_layernorm"),),
    pooler="pooler",
    masked_lm_head=("lm_head",),
    finished_mask="global",
)

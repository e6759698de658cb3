"""EuroBERT: RMS norms before each block, rotary positions, no hidden dropout."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "eurobert",
    stacks=(LayerStack("encoder", "layers", "post_attention_layernorm", pre_norm=True),),
    head=("dense", "classifier"),
    hidden_dropout=(),
    attention_dropout=("attention_dropout",),
    head_dropout=(),
    masked_lm_head=("lm_head",),
    token_types=False,
    finished_mask="global",
)

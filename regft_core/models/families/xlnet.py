"""XLNet, whose tensors are [n, B, H] inside."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "xlnet",
    stacks=(LayerStack("encoder", "layer", "rel_attn"),),
    head=("sequence_summary", "logits_proj"),
    # One field drops hidden representations and attention probabilities alike; the summary keeps its own.
    hidden_dropout=("dropout",),
    attention_dropout=(),
    # Not the summary's own field, so that dropout.hidden reaches every dropout of a pooled classifier.
    head_dropout=("dropout",),
    masked_lm_head=("lm_loss",),
    raw_matrices=("rel_attn.q", "rel_attn.k", "rel_attn.v", "rel_attn.o", "rel_attn.r"),
    layer_embeddings=("rel_attn.seg_embed",),
    batch_dim=1,
    positions="relative",
    summary="last",
)

"""Qwen3, the decoder of Qwen3-Embedding: each token reads what is left of it, so the last one has read the whole text.

Qwen3-Embedding takes the last token's vector (model card of Qwen/Qwen3-Embedding-0.6B): ``pooling: last``.
"""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "qwen3",
    stacks=(LayerStack("decoder", "layers", "post_attention_layernorm", pre_norm=True),),
    # transformers' classifier reads the last token that is not padding by its id. The tokenizer of Qwen3-Embedding ends
    # every text with that id, so the classifier would miss the token that was trained to be read.
    head=(),
    embeds_with="last",
    hidden_dropout=(),
    head_dropout=(),
    attention_dropout=("attention_dropout",),
    token_types=False,
    summary="last",
)

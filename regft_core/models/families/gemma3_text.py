"""Gemma 3 (text), the encoder of EmbeddingGemma where its configuration sets ``use_bidirectional_attention``.

EmbeddingGemma takes the mean over all tokens (model card of google/embeddinggemma-300m): ``pooling: mean``. The two
dense layers that its sentence-transformers pipeline has behind the mean are not part of the encoder's weights and are
not applied. They are linear and have no bias, so a linear head on the mean can express what one behind them can.
"""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "gemma3_text",
    stacks=(LayerStack("decoder", "layers", "pre_feedforward_layernorm", pre_norm=True),),
    head=(),  # transformers' classifier reads one token, and EmbeddingGemma was trained to be read by the mean
    embeds_with="mean",
    hidden_dropout=(),
    head_dropout=(),
    attention_dropout=("attention_dropout",),
    token_types=False,
    summary="last",
)

"""The encoder families that regft knows, a row each; a file of its own with one constant ``FAMILY`` is another one.

``architectures.py`` finds both, and says what the fields mean.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from regft_core.models.architectures import Architecture, LayerStack

#: Families of rotary positions and norms before blocks, without segments and hidden dropout.
_ROTARY: dict[str, Any] = {
    "hidden_dropout": (),
    "head_dropout": (),
    "attention_dropout": ("attention_dropout",),
    "token_types": False,
}
#: Text embedders that are decoders: transformers' classifiers read one token of them.
_EMBEDDER: dict[str, Any] = {**_ROTARY, "head": (), "summary": "last", "padding": None}
_ROWS = (
    Architecture(
        "albert",
        # The layers are shared: each is called several times per forward pass (see sites.py).
        stacks=(LayerStack("encoder", "encoder.albert_layer_groups", "attention"),),
        pooler="pooler",
        hidden_dropout=("hidden_dropout_prob", "classifier_dropout_prob"),
        head_dropout=("classifier_dropout_prob", "hidden_dropout_prob"),
        masked_lm_head=("predictions",),
        projections=("encoder.embedding_hidden_mapping_in",),
        finished_mask="global",
    ),
    Architecture(
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
    ),
    Architecture("bert", pooler="pooler", masked_lm_head=("cls",), finished_mask="global"),
    # DeBERTa, and DeBERTa v2 and v3, whose layers compute attention in another way. That of the first masks its scores
    # with the smallest fp32 number, also under autocast, where they are bf16 or fp16: an error (transformers 5.23).
    *(
        Architecture(
            name,
            head=("pooler", "classifier"),
            hidden_dropout=("hidden_dropout_prob", "pooler_dropout", "cls_dropout"),
            head_dropout=("cls_dropout", "hidden_dropout_prob"),
            masked_lm_head=("cls",),
            projections=("embeddings.embed_proj",),
            half_precision=name != "deberta",
        )
        for name in ("deberta", "deberta-v2")
    ),
    Architecture(
        "distilbert",
        stacks=(LayerStack("encoder", "transformer.layer", "sa_layer_norm"),),
        head=("pre_classifier", "classifier"),
        hidden_dropout=("dropout", "seq_classif_dropout"),
        attention_dropout=("attention_dropout",),
        head_dropout=("seq_classif_dropout", "dropout"),
        masked_lm_head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
        token_types=False,
        finished_mask="global",
    ),
    Architecture(
        "electra",
        masked_lm_head=("generator_predictions", "generator_lm_head"),
        projections=("embeddings_project",),
        finished_mask="global",
    ),
    # EuroBERT: RMS norms before each block, rotary positions, no hidden dropout.
    Architecture(
        "eurobert",
        stacks=(LayerStack("encoder", "layers", "post_attention_layernorm", pre_norm=True),),
        head=("dense", "classifier"),
        masked_lm_head=("lm_head",),
        finished_mask="global",
        **_ROTARY,
    ),
    # Gemma 3 (text), the encoder of EmbeddingGemma where its configuration sets ``use_bidirectional_attention``.
    # EmbeddingGemma takes the mean over all tokens (model card of google/embeddinggemma-300m): ``pooling: mean``. The
    # two dense layers that its sentence-transformers pipeline has behind the mean are not part of the encoder's
    # weights and are not applied. They are linear and have no bias, so a linear head on the mean can express what one
    # behind them can.
    Architecture(
        "gemma3_text",
        stacks=(LayerStack("encoder", "layers", "pre_feedforward_layernorm", pre_norm=True),),
        embeds_with="mean",
        norms_add_one=True,
        **_EMBEDDER,
    ),
    # GTE, as transformers has it: layers ordered as BERT's, rotary positions, gated feed-forward blocks.
    Architecture(
        "gte",
        stacks=(LayerStack("encoder", "layers", "post_attention_layernorm"),),
        pooler="pooler",
        masked_lm_head=("lm_head",),
        finished_mask="global",
    ),
    # ModernBERT: norms before each block, rotary positions, local attention.
    Architecture(
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
    ),
    Architecture(
        "mpnet",
        stacks=(LayerStack("encoder", "encoder.layer", "attention"),),
        hidden_dropout=("hidden_dropout_prob",),
        head_dropout=("hidden_dropout_prob",),
        masked_lm_head=("lm_head",),
        token_types=False,
        positions="after_padding",
        padding_id=1,
        finished_mask="global",
    ),
    # Qwen3, the decoder of Qwen3-Embedding: each token reads what is left of it, so the last one has read the whole
    # text. Qwen3-Embedding takes the last token's vector (model card of Qwen/Qwen3-Embedding-0.6B): ``pooling: last``.
    Architecture(
        "qwen3",
        stacks=(LayerStack("encoder", "layers", "post_attention_layernorm", pre_norm=True),),
        # transformers' classifier reads the last token that is not padding by its id. The tokenizer of Qwen3-Embedding
        # ends every text with that id, so the classifier would miss the token that was trained to be read.
        embeds_with="last",
        **_EMBEDDER,
    ),
    # RoBERTa, XLM-R and CamemBERT.
    Architecture(
        "roberta",
        masked_lm_head=("lm_head",),
        positions="after_padding",
        model_types=("roberta", "xlm-roberta", "camembert"),
        finished_mask="global",
    ),
    # XLNet, whose tensors are [n, B, H] inside.
    Architecture(
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
        padding="left",
    ),
)
#: By the name of a file.
SHIPPED = {row.name.replace("-", "_"): SimpleNamespace(FAMILY=row) for row in _ROWS}

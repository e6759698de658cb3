"""DeBERTa."""

from regft_core.models.architectures import Architecture

FAMILY = Architecture(
    "deberta",
    head=("pooler", "classifier"),
    hidden_dropout=("hidden_dropout_prob", "pooler_dropout", "cls_dropout"),
    head_dropout=("cls_dropout", "hidden_dropout_prob"),
    masked_lm_head=("cls",),
    projections=("embeddings.embed_proj",),
)

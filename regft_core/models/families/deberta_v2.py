"""DeBERTa v2 and v3."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "deberta-v2",
    stacks=(LayerStack("encoder", "encoder.layer", "attention.output"),),
    head=("pooler", "classifier"),
    hidden_dropout=("hidden_dropout_prob", "pooler_dropout", "cls_dropout"),
    attention_dropout=("attention_probs_dropout_prob",),
    head_dropout=("cls_dropout", "hidden_dropout_prob"),
    masked_lm_head=("cls",),
    projections=("embeddings.embed_proj",),
)

"""DistilBERT."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "distilbert",
    stacks=(LayerStack("encoder", "transformer.layer", "sa_layer_norm"),),
    head=("pre_classifier", "classifier"),
    hidden_dropout=("dropout", "seq_classif_dropout"),
    attention_dropout=("attention_dropout",),
    head_dropout=("seq_classif_dropout", "dropout"),
    masked_lm_head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    token_types=False,
    finished_mask="global",
)

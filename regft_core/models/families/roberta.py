"""RoBERTa, XLM-R and CamemBERT."""

from regft_core.models.architectures import Architecture, LayerStack

FAMILY = Architecture(
    "roberta",
    stacks=(LayerStack("encoder", "encoder.layer", "attention.output"),),
    head=("classifier",),
    hidden_dropout=("hidden_dropout_prob", "classifier_dropout"),
    attention_dropout=("attention_probs_dropout_prob",),
    head_dropout=("classifier_dropout", "hidden_dropout_prob"),
    masked_lm_head=("lm_head",),
    positions="after_padding",
    model_types=("roberta", "xlm-roberta", "camembert"),
    finished_mask="global",
)

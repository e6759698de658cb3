"""RoBERTa, XLM-R and CamemBERT."""

from regft_core.models.architectures import Architecture

FAMILY = Architecture(
    "roberta",
    masked_lm_head=("lm_head",),
    positions="after_padding",
    model_types=("roberta", "xlm-roberta", "camembert"),
    finished_mask="global",
)

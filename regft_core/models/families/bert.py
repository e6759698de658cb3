"""BERT."""

from regft_core.models.architectures import Architecture

FAMILY = Architecture(
    "bert",
    pooler="pooler",
    masked_lm_head=("cls",),
    finished_mask="global",
)

"""ELECTRA."""

from regft_core.models.architectures import Architecture

FAMILY = Architecture(
    "electra",
    masked_lm_head=("generator_predictions", "generator_lm_head"),
    projections=("embeddings_project",),
    finished_mask="global",
)

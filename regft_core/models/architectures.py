"""The encoder families that regft supports, as tables of names; nothing here imports torch.

Everything that differs between families and that a method or the loader must know is one
row here: where the layers are, which module's output enters the feed-forward block, which
configuration fields hold which dropout, which parameters are new. Module paths are relative
to the base model (``model.base_model``) except for heads, which belong to the classifier.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

from regft_core.errors import ModelError


@dataclass(frozen=True)
class Stack:
    """One stack of layers: the list that holds them and the place after attention in each."""

    name: str
    layers: str
    after_attention: str


@dataclass(frozen=True)
class Architecture:
    """What is specific to one encoder family.

    ``hidden_dropout`` and ``attention_dropout`` are configuration fields. ``head`` are module
    paths of the classifier that no pretraining checkpoint holds. ``pooler`` is pretrained when
    the checkpoint holds it and new when it does not (checkpoints saved from a masked LM).
    ``projections`` are pretrained linears between the embeddings and the first layer.
    ``masked_lm_head`` are the modules of the family's masked LM that follow its encoder, in
    order; empty when the family has no masked LM that regft can use.
    """

    name: str
    stacks: tuple[Stack, ...]
    head: tuple[str, ...]
    hidden_dropout: tuple[str, ...]
    attention_dropout: tuple[str, ...]
    masked_lm_head: tuple[str, ...] = ()
    pooler: str | None = None
    projections: tuple[str, ...] = ()
    #: Raw parameters inside a layer that act as matrices [in, out] although they are not Linear weights.
    raw_matrices: tuple[str, ...] = ()
    #: Parameters inside a layer that are embeddings, which weight perturbations leave alone.
    layer_embeddings: tuple[str, ...] = ()
    batch_dim: int = 0
    token_types: bool = True
    model_types: tuple[str, ...] = field(default=())


_BERT_LAYERS = (Stack("encoder", "encoder.layer", "attention.output"),)
_BERT_ATTENTION = ("attention_probs_dropout_prob",)

_TABLE = (
    Architecture(
        "bert",
        stacks=_BERT_LAYERS,
        head=("classifier",),
        pooler="pooler",
        hidden_dropout=("hidden_dropout_prob", "classifier_dropout"),
        attention_dropout=_BERT_ATTENTION,
        masked_lm_head=("cls",),
    ),
    Architecture(
        "roberta",
        stacks=_BERT_LAYERS,
        head=("classifier",),
        hidden_dropout=("hidden_dropout_prob", "classifier_dropout"),
        attention_dropout=_BERT_ATTENTION,
        masked_lm_head=("lm_head",),
        model_types=("roberta", "xlm-roberta", "camembert"),
    ),
    Architecture(
        "electra",
        stacks=_BERT_LAYERS,
        head=("classifier",),
        hidden_dropout=("hidden_dropout_prob", "classifier_dropout"),
        attention_dropout=_BERT_ATTENTION,
        masked_lm_head=("generator_predictions", "generator_lm_head"),
        projections=("embeddings_project",),
    ),
    Architecture(
        "xlnet",
        stacks=(Stack("encoder", "layer", "rel_attn"),),
        head=("sequence_summary", "logits_proj"),
        # One field drops hidden representations and attention probabilities alike; the summary keeps its own.
        hidden_dropout=("dropout",),
        attention_dropout=(),
        masked_lm_head=("lm_loss",),
        raw_matrices=("rel_attn.q", "rel_attn.k", "rel_attn.v", "rel_attn.o", "rel_attn.r"),
        layer_embeddings=("rel_attn.seg_embed",),
        batch_dim=1,
    ),
    Architecture(
        "deberta",
        stacks=_BERT_LAYERS,
        head=("pooler", "classifier"),
        hidden_dropout=("hidden_dropout_prob", "pooler_dropout", "cls_dropout"),
        attention_dropout=_BERT_ATTENTION,
        masked_lm_head=("cls",),
        projections=("embeddings.embed_proj",),
    ),
    Architecture(
        "deberta-v2",
        stacks=_BERT_LAYERS,
        head=("pooler", "classifier"),
        hidden_dropout=("hidden_dropout_prob", "pooler_dropout", "cls_dropout"),
        attention_dropout=_BERT_ATTENTION,
        masked_lm_head=("cls",),
        projections=("embeddings.embed_proj",),
    ),
    Architecture(
        "bart",
        stacks=(
            Stack("encoder", "encoder.layers", "self_attn_layer_norm"),
            Stack("decoder", "decoder.layers", "encoder_attn_layer_norm"),
        ),
        head=("classification_head",),
        hidden_dropout=("dropout", "activation_dropout", "classifier_dropout"),
        attention_dropout=("attention_dropout",),
        token_types=False,
    ),
    Architecture(
        "distilbert",
        stacks=(Stack("encoder", "transformer.layer", "sa_layer_norm"),),
        head=("pre_classifier", "classifier"),
        hidden_dropout=("dropout", "seq_classif_dropout"),
        attention_dropout=("attention_dropout",),
        masked_lm_head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
        token_types=False,
    ),
    Architecture(
        "albert",
        # The layers are shared: each is called several times per forward pass (see sites.py).
        stacks=(Stack("encoder", "encoder.albert_layer_groups", "attention"),),
        head=("classifier",),
        pooler="pooler",
        hidden_dropout=("hidden_dropout_prob", "classifier_dropout_prob"),
        attention_dropout=_BERT_ATTENTION,
        masked_lm_head=("predictions",),
        projections=("encoder.embedding_hidden_mapping_in",),
    ),
)

_BY_MODEL_TYPE = {model_type: row for row in _TABLE for model_type in (row.model_types or (row.name,))}

#: Values of ``model_type`` in a checkpoint's config.json that regft can fine-tune.
SUPPORTED = tuple(sorted(_BY_MODEL_TYPE))


def architecture_of(model_type: str | None, where: str = "the model") -> Architecture:
    """Return the row for a configuration's ``model_type``; ModelError with the supported ones otherwise."""
    row = _BY_MODEL_TYPE.get(model_type or "")
    if row is None:
        near = difflib.get_close_matches(model_type or "", SUPPORTED, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ModelError(
            f"{where}: model_type '{model_type}' is not supported. Supported: {', '.join(SUPPORTED)}.{hint} "
            "To add a family, add its row to regft_core/models/architectures.py."
        )
    return row


def dropout_fields(config: Any) -> dict[str, tuple[str, ...]]:
    """Return the configuration fields of hidden and of attention dropout, ``{"hidden", "attention"}``.

    Only fields that this configuration has: a classifier dropout that is None follows the
    hidden one by itself. ``attention`` is empty for XLNet, whose one field is both.
    """
    row = architecture_of(getattr(config, "model_type", None))
    hidden = tuple(name for name in row.hidden_dropout if getattr(config, name, None) is not None)
    attention = tuple(name for name in row.attention_dropout if getattr(config, name, None) is not None)
    return {"hidden": hidden, "attention": attention}


def apply_dropout(config: Any, hidden: float | str, attention: float | str) -> None:
    """Write dropout probabilities into ``config``, in place; ``"keep"`` leaves what it says.

    A number replaces every field of its kind, so ``hidden: 0`` switches off embedding, output,
    pooler and classifier dropout together. Call it before the model is built: modules copy the
    values. Raises ModelError where the family cannot separate the two kinds.
    """
    fields = dropout_fields(config)
    if attention != "keep" and not fields["attention"] and attention != hidden:
        raise ModelError(
            f"dropout.attention: {attention} was given, but {config.model_type} has one dropout probability for hidden "
            "representations and attention together: write 'keep', or the same value as dropout.hidden."
        )
    for kind, value in (("hidden", hidden), ("attention", attention)):
        if value != "keep":
            for name in fields[kind]:
                setattr(config, name, float(value))

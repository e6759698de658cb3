"""The differences between encoder families that a method or the loader must know, a row each in ``families``.

Module paths are relative to the base model (``model.base_model``) except for heads, which belong to the classifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from regft_core.catalogue import FAMILIES, shown
from regft_core.errors import ConfigError, ModelError, RegftError
from regft_core.lazy import Tensor, torch
from regft_core.names import suggestion


@dataclass(frozen=True)
class LayerStack:
    """One stack of layers: the list that holds them and the place after attention in each.

    ``name`` is ``decoder`` in an encoder-decoder alone, whose input is moved right by a start token. The first output
    of ``after_attention`` enters the feed-forward block and its residual connection; with ``pre_norm`` it is the norm
    whose input is the residual stream after attention.
    """

    name: str
    layers: str
    after_attention: str
    pre_norm: bool = False


@dataclass(frozen=True)
class Architecture:
    """The names that are specific to one encoder family; what a row does not say is as BERT has it.

    ``hidden_dropout`` and ``attention_dropout`` are configuration fields. ``head`` are modules of the classifier that
    no pretraining checkpoint holds. ``pooler`` and ``pretrained_head`` are new only where the checkpoint lacks them.
    ``projections`` are pretrained linears between the embeddings and the first layer. ``masked_lm_head`` are the
    modules behind the encoder of the family's masked LM, empty without one. ``embeds_with`` is the pooling of a family
    of text embedders, which has no ``head``.
    """

    name: str
    stacks: tuple[LayerStack, ...] = (LayerStack("encoder", "encoder.layer", "attention.output"),)
    head: tuple[str, ...] = ("classifier",)
    hidden_dropout: tuple[str, ...] = ("hidden_dropout_prob", "classifier_dropout")
    attention_dropout: tuple[str, ...] = ("attention_probs_dropout_prob",)
    #: Fields with the dropout before the last linear of a pooled classifier: the first that is set counts.
    head_dropout: tuple[str, ...] = ("classifier_dropout", "hidden_dropout_prob")
    masked_lm_head: tuple[str, ...] = ()
    embeds_with: Literal["last", "mean"] | None = None
    pooler: str | None = None
    pretrained_head: tuple[str, ...] = ()
    projections: tuple[str, ...] = ()
    #: Raw parameters inside a layer that act as matrices [in, out] although they are not Linear weights.
    raw_matrices: tuple[str, ...] = ()
    #: Parameters inside a layer that are embeddings, which weight perturbations leave alone.
    layer_embeddings: tuple[str, ...] = ()
    batch_dim: int = 0
    token_types: bool = True
    #: Whether norms multiply by 1 + weight, so that a weight of 0 changes nothing, instead of by the weight.
    norms_add_one: bool = False
    #: ``after_padding``: positions are numbered from the padding id + 1; ``relative``: any length can be read.
    positions: Literal["absolute", "after_padding", "relative"] = "absolute"
    #: The padding id that positions are numbered from where the family's code has it, whatever the configuration says.
    padding_id: int | None = None
    #: Whether the base model takes finished attention masks, one for all layers (``global``) or one for each kind of
    #: layer (``by_layer``); None: it builds its own without waiting for a device.
    finished_mask: Literal["global", "by_layer"] | None = None
    #: Whether its code in transformers runs under autocast to bf16 or fp16.
    half_precision: bool = True
    #: The real token whose last hidden state stands for the text.
    summary: Literal["first", "last"] = "first"
    #: The side of padding that neither a head nor absolute positions read; None: the tokenizer's, either will do.
    padding: Literal["left", "right"] | None = "right"
    model_types: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Entry of this row's file in a key (``Catalogue.entry``)."""
        return FAMILIES.entry(_file(self.name))


def _file(name: str) -> str:
    return name.replace("-", "_")


def architectures() -> dict[str, Architecture]:
    """Return {model_type: row} of every family. ModelError where the package has a model_type twice."""
    return _rows(FAMILIES.state())[0]


@lru_cache(maxsize=8)
def _rows(state: tuple[tuple[str, int, int], ...]) -> tuple[dict[str, Architecture], list[RegftError]]:
    """{model_type: row}, and what is wrong with files that are not the package's (whose ``state`` is given)."""
    found: dict[str, Architecture] = {}
    broken: list[RegftError] = []
    for file in FAMILIES.names():
        try:
            row = _row(file)
            claimed = row.model_types or (row.name,)
            for taken in filter(found.get, claimed):
                other = FAMILIES.path(_file(found[taken].name))
                message = f"{shown(FAMILIES.path(file))} and {shown(other)} both claim model_type '{taken}'"
                raise ModelError("bad-family-file", f"{message}\n    -> remove it from one of them")
            found |= dict.fromkeys(claimed, row)
        except (ConfigError, ModelError) as error:
            if FAMILIES.is_shipped(file):
                raise
            broken.append(error)
    return found, broken


def _row(file: str) -> Architecture:
    row, path = getattr(FAMILIES.load(file), "FAMILY", None), shown(FAMILIES.path(file))
    if not isinstance(row, Architecture):
        hint = "write FAMILY = Architecture(...) as the rows of regft_core/models/families/__init__.py are"
        raise ModelError("bad-family-file", f"{path} has no constant FAMILY = Architecture(...)\n    -> {hint}")
    if _file(row.name) != file:
        hint = f"rename the file to {_file(row.name)}.py"
        raise ModelError("bad-family-file", f"{path} holds the family '{row.name}'\n    -> {hint}")
    return row


def architecture_of(model_type: str | None, where: str = "the model") -> Architecture:
    """Return the row for a configuration's ``model_type``; ModelError with the supported ones otherwise."""
    rows = architectures()
    if (row := rows.get(model_type or "")) is None:
        if broken := _rows(FAMILIES.state())[1]:
            raise broken[0]  # it may be the one that is meant
        hint = f"{suggestion(model_type or '', sorted(rows), 'supported')}; a file in families/ adds a family"
        raise ModelError("unknown-family", f"{where}: model_type '{model_type}' is not supported\n    -> {hint}")
    return row


def no_pooling(row: Architecture, pooling: str) -> str | None:
    """Why ``model.pooling`` is not possible in a family, and which one is; None where it is."""
    if pooling not in ("head", "mask") or row.embeds_with is None:
        return None
    head = f"'{pooling}' needs a head, and {row.name} has none that fits its embeddings"
    return f"model.pooling: {head}; set pooling: {row.embeds_with}"


def dropout_fields(config: Any) -> dict[str, tuple[str, ...]]:
    """Return the fields that ``config`` has, ``{"hidden", "attention"}``; XLNet has one field, as hidden, for both."""
    row = architecture_of(getattr(config, "model_type", None))
    fields = {"hidden": row.hidden_dropout, "attention": row.attention_dropout}
    return {kind: tuple(n for n in names if getattr(config, n, None) is not None) for kind, names in fields.items()}


def without_dropout(config: Any) -> bool:
    """Whether no dropout field of ``config`` is above 0, so that two passes over one batch are the same."""
    return not any(getattr(config, name) > 0 for names in dropout_fields(config).values() for name in names)


def apply_dropout(config: Any, hidden: float | str, attention: float | str) -> None:
    """Write dropout into ``config``, unless ``"keep"``. ModelError where the family cannot have it so."""
    fields = dropout_fields(config)
    if hidden not in ("keep", 0) and not fields["hidden"]:
        message = f"dropout.hidden: {hidden}, but {config.model_type} has no dropout of hidden representations"
        raise ModelError("dropout-not-possible", f"{message}\n    -> write 'keep' or 0")
    if attention != "keep" and not fields["attention"] and attention != hidden:
        message = f"dropout.attention: {attention}, but {config.model_type} has one dropout for hidden and attention"
        raise ModelError("dropout-not-possible", f"{message}\n    -> write 'keep', or the value of dropout.hidden")
    for kind, value in (("hidden", hidden), ("attention", attention)):
        if value != "keep":
            for name in fields[kind]:
                setattr(config, name, float(value))


def prepared_mask(base: Any, mask: Tensor, padded: bool | None) -> Any:
    """Return what ``base`` gets as ``attention_mask`` instead of ``mask [B, n]``.

    Given a mask, transformers asks in every pass whether any token is padding, for which a GPU's host waits. So the
    encoder gets none where nothing is padded, else a finished one ``[B, 1, n, n]`` with transformers' bits; for
    families with local attention one for each kind of layer.
    """
    form = architecture_of(base.config.model_type).finished_mask
    if form is None or padded is None or mask.dim() != 2:
        return mask
    if not padded:
        return None
    from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask

    given = {
        "config": base.config,
        "inputs_embeds": torch.empty((*mask.shape, 0), device=mask.device),  # only its shape, type and device are read
        "attention_mask": mask,
        "allow_is_bidirectional_skip": False,
    }
    full = create_bidirectional_mask(**given)
    if form == "global":
        return full
    return {"full_attention": full, "sliding_attention": create_bidirectional_sliding_window_mask(**given)}


def shape_of_inputs(name: str, shape: torch.Size) -> tuple[int, ...]:
    """Shape of a mask over the inputs of a matrix: ``[1, in]`` of ``[out, in]``; XLNet's have three dimensions."""
    if len(shape) == 2 or name.endswith(".o"):
        return (1, *shape[1:])
    return (shape[0], *(1 for _ in shape[1:]))

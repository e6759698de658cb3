"""Build the tokenizer and the classifier of a resolved encoder.

The new parameters (classification head, and the pooler when the checkpoint has none) are drawn from ``head_seed``
alone, so that arms which differ in dropout, method or device start from the same head.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regft_core.data.batches import Batch
from regft_core.errors import ModelError
from regft_core.kinds import find
from regft_core.models.architectures import Architecture, apply_dropout, architecture_of, no_pooling, prepared_mask
from regft_core.models.checkpoint_files import plain_config
from regft_core.models.devices import computing_alone, take_fast_products
from regft_core.models.heads import MaskClassifier, PooledClassifier, masked_lm_head_of, without_pooler
from regft_core.models.sites import takes_token_types
from regft_core.models.source import ModelSource
from regft_core.schema import DropoutConfig


def load_tokenizer(source: ModelSource) -> Any:
    """Return the fast tokenizer of ``source``; raises as ``read_tokenizer``."""
    path = source.opened()
    return read_tokenizer(path, f"model '{source.name}' ({path})", source.config().get("model_type"))


def read_tokenizer(directory: Path, where: str, model_type: str | None) -> Any:
    """Return a folder's tokenizer, padding as its family reads. Raises ModelError if it is not fast or cannot pad."""
    from transformers import AutoTokenizer

    try:
        with quiet():
            # What spells "</s>" or "[SEP]" in a text is text.
            own = {"local_files_only": True, "trust_remote_code": False, "split_special_tokens": True}
            tokenizer = AutoTokenizer.from_pretrained(directory, **own)
    except Exception as error:  # every tokenizer class fails in its own way on damaged files
        hint = "save it again with the installed transformers: tokenizer.save_pretrained(directory)"
        raise ModelError("cannot-load", f"{where}: the tokenizer cannot be loaded: {error}\n    -> {hint}") from error
    if not getattr(tokenizer, "is_fast", False):
        message = f"{where}: {type(tokenizer).__name__} is not a fast tokenizer (no tokenizer.json)"
        hint = "convert it with transformers and save it beside the weights"
        raise ModelError("slow-tokenizer", f"{message}\n    -> {hint}")
    if tokenizer.pad_token_id is None:
        hint = "set tokenizer.pad_token and save the tokenizer beside the weights, or use another encoder"
        raise ModelError("pad-token-missing", f"{where}: its tokenizer has no padding token\n    -> {hint}")
    tokenizer.padding_side = architecture_of(model_type, where).padding or tokenizer.padding_side
    return tokenizer


def load_classifier(
    source: ModelSource,
    *,
    kind: str,
    labels: Sequence[str] | None,
    dropout: DropoutConfig,
    head_seed: int,
    pooling: str = "head",
    rows_per_example: int = 1,
) -> Any:
    """Load the encoder with a newly drawn head for a kind of task, in fp32, on the CPU, in eval mode.

    The attribute ``regft_new_parameters`` lists the names of what was drawn. The caller's random state stays.

    Args:
        kind: a file of ``regft_core/kinds``, which names the outputs by the task's ``labels``, where it has some.
        pooling: "head" (the family's own), "mask" (the masked-LM head at a mask), or one of ``poolings``.
        rows_per_example: 2 when the texts of a pair are encoded separately; see ``EncoderConfig.rows_per_example``.

    Raises ModelError: unsupported family, or a checkpoint that does not hold the whole encoder; RegftError where
    another thread of this process loads or trains a model.
    """
    from transformers import AutoModel, AutoModelForSequenceClassification

    take_fast_products()
    config = _config(source)
    architecture = architecture_of(config.model_type, where=f"model '{source.name}'")
    if problem := no_pooling(architecture, pooling):
        raise ModelError("pooling-not-possible", f"model '{source.name}': {problem}")
    names, config.problem_type = find(kind).output_names(labels), find(kind).problem_type
    config.id2label, config.label2id = dict(enumerate(names)), {name: index for index, name in enumerate(names)}
    apply_dropout(config, dropout.hidden, dropout.attention)
    if pooling == "mask":
        return _mask_classifier(source, config, architecture, head_seed)
    if pooling == "head":
        model, info = _from_pretrained(AutoModelForSequenceClassification, source, config)
        pooler = [f"{model.base_model_prefix}.{architecture.pooler}"] if architecture.pooler else []
        optional, absent = [*architecture.pretrained_head, *pooler], _absent(info)
        new = (*architecture.head, *(one for one in optional if any(key.startswith(f"{one}.") for key in absent)))
    else:
        encoder, info = _from_pretrained(AutoModel, source, config, pooler=False)
        with computing_alone(), torch.random.fork_rng(devices=[]):
            model = PooledClassifier(encoder, pooling=pooling, rows_per_example=rows_per_example).eval()
        new = ("classifier",)
    _refuse_other_faults(new, architecture, source, info)
    draw_parameters((model.get_submodule(name) for name in new), config, head_seed)
    drawn = tuple(name for name, _ in model.named_parameters() if any(name.startswith(f"{module}.") for module in new))
    model.regft_new_parameters = drawn
    return model


def load_masked_lm_head(source: ModelSource, model: Any, *, head_seed: int = 0) -> tuple[nn.Module, bool]:
    """Return the masked-LM head that belongs to a loaded classifier, and whether its weights are pretrained.

    The head maps hidden vectors [m, H] to vocabulary logits [m, V] with the family's own modules. Its output matrix
    *is* the model's input embedding: a loss on the logits also moves the embeddings, and optimisers must not list that
    parameter twice. Only a pretrained matrix that the configuration declares untied (EuroBERT) stays the head's own. A
    checkpoint without the whole head (ELECTRA discriminators, sentence encoders) gives one drawn from ``head_seed``.

    Raises ModelError where the family has no masked LM over its input positions.
    """
    config = _config(source)
    architecture = architecture_of(config.model_type, where=f"model '{source.name}'")
    language_model, info = _masked_lm(source, config, architecture)
    embedding = model.get_input_embeddings()
    head = masked_lm_head_of(language_model, architecture)
    missing = any(key.split(".")[0] in architecture.masked_lm_head for key in info["missing_keys"])
    if missing or getattr(config, "tie_word_embeddings", True):
        language_model.get_output_embeddings().weight = embedding.weight
    if missing:
        draw_parameters([head], config, head_seed, keep=[embedding.weight])
    return head.to(device=embedding.weight.device), not missing


def _masked_lm(source: ModelSource, config: Any, architecture: Architecture) -> tuple[Any, Any]:
    """The family's masked LM and what loading it said. Raises ModelError where the family has none."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    # DeBERTa has a second layout of its head, which multiplies by the embedding that it is handed.
    if not architecture.masked_lm_head or not getattr(config, "legacy", True):
        message = f"model '{source.name}': {architecture.name} has no masked LM over its input positions"
        hint = "use an encoder-only model (bert, roberta, electra, deberta ...)"
        raise ModelError("encoder-does-not-fit", f"{message}\n    -> {hint}")
    # XLNet's permutation LM shares its class between both tasks and is listed under causal LMs.
    auto = AutoModelForCausalLM if architecture.name == "xlnet" else AutoModelForMaskedLM
    return _from_pretrained(auto, source, config)


def _mask_classifier(source: ModelSource, config: Any, architecture: Architecture, head_seed: int) -> MaskClassifier:
    """The masked LM as a classifier; parameters of its head that the checkpoint lacks are drawn and count as new."""
    (language_model, info), parts = _masked_lm(source, config, architecture), architecture.masked_lm_head
    # Parts of the head are all drawn where one of them is missing: half a head predicts nothing.
    new = parts if any(key.split(".")[0] in parts for key in info["missing_keys"]) else ()
    _refuse_other_faults(new, architecture, source, info)
    model: Any = MaskClassifier(language_model, pretrained=not new).eval()
    if new:
        draw_parameters([model.masked_lm_head], config, head_seed, keep=[model.get_input_embeddings().weight])
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    own = tuple(name for name, parameter in model.named_parameters() if id(parameter) not in encoder)
    model.regft_new_parameters = own if new else ()
    return model


def draw_parameters(modules: Iterable[nn.Module], config: Any, seed: int, keep: Iterable[nn.Parameter] = ()) -> None:
    """Draw linears from N(0, initializer_range), zero biases, reset norms, by ``seed`` alone; not those in ``keep``."""
    generator = torch.Generator().manual_seed(seed)
    std = getattr(config, "initializer_range", None) or getattr(config, "init_std", None) or 0.02
    kept = {id(parameter) for parameter in keep}
    norm = 0.0 if architecture_of(config.model_type).norms_add_one else 1.0
    with torch.no_grad():
        for name, parameter in (named for module in modules for named in module.named_parameters()):
            if id(parameter) in kept:
                continue
            if parameter.dim() >= 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else norm)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' reports and progress bars: what matters in them is checked here and raised."""
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _config(source: ModelSource) -> Any:
    path = source.opened()
    try:
        with quiet():
            return plain_config(path)
    except Exception as error:  # each family fails in its own way on values that it has no use for
        message = f"model '{source.name}': {path / 'config.json'} is not usable: {error}"
        hint = "save the model again with the installed transformers: model.save_pretrained(directory)"
        raise ModelError("bad-model-config", f"{message}\n    -> {hint}") from error


def _from_pretrained(auto: Any, source: ModelSource, config: Any, *, pooler: bool = True) -> tuple[Any, dict[str, Any]]:
    model_class, path = auto._model_mapping[type(config)], source.opened()
    options = {} if pooler else without_pooler(model_class)
    # Loading draws missing parameters from the global generator; they are drawn again by us.
    with computing_alone(), quiet(), torch.random.fork_rng(devices=[]):
        try:
            model, info = model_class.from_pretrained(
                path,
                config=config,
                dtype=torch.float32,
                # XLNet and DeBERTa have eager attention only.
                attn_implementation="sdpa" if getattr(model_class, "_supports_sdpa", False) else "eager",
                use_safetensors=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # a fine-tuned head of another width; anything else is refused below
                output_loading_info=True,
                **options,
            )
        except Exception as error:
            message = f"model '{source.name}': the weights in {path} cannot be loaded: {error}"
            hint = "copy them again, or save them with model.save_pretrained(directory)"
            raise ModelError("cannot-load", f"{message}\n    -> {hint}") from error
    return model.eval(), info


def _absent(info: dict[str, Any]) -> list[str]:
    """Names of the parameters that the checkpoint does not have, or has in another shape."""
    return [*info["missing_keys"], *(key[0] if isinstance(key, tuple) else key for key in info["mismatched_keys"])]


def _refuse_other_faults(
    new: Sequence[str], architecture: Architecture, source: ModelSource, info: dict[str, Any]
) -> None:
    """ModelError if the checkpoint misses more than the modules ``new``, or has more layers than it says."""
    wrong = sorted(key for key in _absent(info) if not any(key.startswith(f"{module}.") for module in new))
    # Layers beyond those that the configuration counts would otherwise be dropped without a word.
    extra = sorted(key for key in info["unexpected_keys"] if any(s.layers + "." in key for s in architecture.stacks))
    if architecture.name == "xlnet":
        extra = [key for key in extra if key.startswith(("transformer.layer.", "layer."))]
    for keys, fault in ((wrong, "lacks or mis-shapes"), (extra, "has, beyond what config.json describes,")):
        if keys:
            shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
            message = f"model '{source.name}': the checkpoint in {source.path} {fault} encoder weights: {shown}"
            hint = "save model and config.json together (save_pretrained), or give another directory"
            raise ModelError("weights-do-not-fit", f"{message}\n    -> {hint}")


class SecondEncoder(nn.Module):
    """A masked LM from the classifier's checkpoint: ``encoder``, its ``head``, and whether that is ``pretrained``."""

    def __init__(self, source: ModelSource, *, dropout: DropoutConfig, head_seed: int) -> None:
        super().__init__()
        # Pooled, so that the encoder has no pooler of its own, which masked LMs do not read.
        classifier = load_classifier(
            source, kind="classification", labels=("0", "1"), dropout=dropout, head_seed=head_seed, pooling="mean"
        )
        self.head, self.pretrained = load_masked_lm_head(source, classifier, head_seed=head_seed)
        self.encoder: Any = classifier.base_model
        self.token_types = takes_token_types(classifier)

    def forward(self, batch: Batch) -> Tensor:
        """Last hidden states ``[B, n, H]``."""
        inputs = batch.model_inputs(self.token_types)
        inputs["attention_mask"] = prepared_mask(self.encoder, batch.attention_mask, batch.padded)
        return self.encoder(**inputs)[0]

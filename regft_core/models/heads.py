"""Heads of ours: a plain one on pooled token vectors, and answers by a masked-LM head, the same for every family.

Behind an encoder without pooler come pooling, dropout and one linear. For pairs that are encoded separately, the linear
reads both vectors, their difference and their product (InferSent, Conneau et al. 2017; Sentence-BERT, Reimers and
Gurevych 2019), scaled to one length first: without this a solved head on 300 pairs of STS-B loses 5 points.

At a mask (``pooling: mask``) the logits are those of the masked LM at the mask of a row, for one token per label (Gao
et al., 2021, equation 1). The mask and these tokens are buffers, which the preparation of a phase sets.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regft_core.catalogue import POOLINGS
from regft_core.errors import ModelError
from regft_core.models import poolings as poolings  # so that its code is in the key of whatever pools
from regft_core.models.architectures import Architecture, architecture_of
from regft_core.models.sites import Sites


class ClassifierOutput(NamedTuple):
    """Result of a forward pass: ``logits`` [B, K]."""

    logits: Tensor


def pool(hidden: Tensor, mask: Tensor, pooling: str, summary: str) -> Tensor:
    """One vector [rows, H] per row of token vectors [rows, n, H] of one layer."""
    rule = _rule(pooling)
    return rule.finish(rule.pool(hidden, mask, summary))


def _rule(pooling: str) -> SimpleNamespace:
    rule = POOLINGS.load(pooling)
    finish = getattr(rule, "finish", lambda vectors: vectors)
    return SimpleNamespace(pool=rule.pool, finish=finish, layers=getattr(rule, "layers", 1))


def pair_features(pooled: Tensor, layers: int = 1) -> Tensor:
    """[u, v, |u - v|, u * v], [B, 4d], of vectors [2B, d], scaled to a root mean square of 1 in each of ``layers``."""
    parts = pooled.unflatten(-1, (layers, -1))
    scaled = (parts / parts.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)).flatten(1)
    first, second = scaled[0::2], scaled[1::2]
    return torch.cat([first, second, (first - second).abs(), first * second], dim=-1)


class _Classifier(nn.Module):
    """The surface of a transformers classifier over a configuration, and an encoder under its family's prefix."""

    def __init__(self, config: Any, prefix: str) -> None:
        super().__init__()
        self.config, self.base_model_prefix = config, prefix

    @property
    def base_model(self) -> Any:
        """The encoder."""
        return self.get_submodule(self.base_model_prefix)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.get_input_embeddings()


class PooledClassifier(_Classifier):
    """Encoder, pooling, dropout and one linear, with the surface of a transformers classifier.

    Attributes:
        rows_per_example: 2 when the texts of a pair are rows of their own, one after the other.
        layers: how many of the last layers are pooled, side by side.
        parts: a solved head's weights of the parts of width H; the last layer counts as much as all below together.
    """

    def __init__(self, encoder: Any, *, pooling: str, rows_per_example: int = 1) -> None:
        config = encoder.config
        super().__init__(config, encoder.base_model_prefix)
        architecture = architecture_of(config.model_type)
        self.pooling, self.rows_per_example = pooling, rows_per_example
        self._rule = _rule(pooling)
        depth = config.decoder_layers if config.is_encoder_decoder else config.num_hidden_layers
        self.layers = min(self._rule.layers, depth)
        self.summary = "last" if pooling == "last" else architecture.summary
        self.add_module(self.base_model_prefix, encoder)
        given = [value for name in architecture.head_dropout if (value := getattr(config, name, None)) is not None]
        self.dropout = nn.Dropout(float(given[0])) if given else nn.Identity()
        below = self.layers - 1
        self.parts = (*below * (max(1, below) ** -0.5,), 1.0) * (4 if rows_per_example == 2 else 1)
        self.classifier = nn.Linear(config.hidden_size * len(self.parts), config.num_labels)

    def forward(self, windows: Tensor | None = None, **inputs: Tensor) -> ClassifierOutput:
        """Logits [B, K] of ``inputs`` [rows, n]; ``windows`` [texts, rows]: the mean over the rows of each text."""
        states, mask = self._states(inputs), inputs.get("attention_mask")
        if mask is None:
            mask = torch.ones(states[-1].shape[:2], dtype=torch.int64, device=states[-1].device)
        pooled = torch.cat([self._rule.pool(hidden, mask, self.summary) for hidden in states], dim=1)
        if windows is not None:
            with torch.autocast(pooled.device.type, enabled=False):
                pooled = windows @ pooled.float()  # windows count alike
        pooled = self._rule.finish(pooled.unflatten(1, (self.layers, -1)).flatten(0, 1)).view(pooled.shape)
        if self.rows_per_example == 2:
            pooled = pair_features(pooled, self.layers)
        return ClassifierOutput(self.classifier(self.dropout(pooled)))

    def _states(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """[rows, n, H] of each layer that is pooled."""
        if self.layers == 1:
            return [self.base_model(**inputs)[0]]
        outputs = self.base_model(**inputs, output_hidden_states=True)
        last = outputs[0]
        before = outputs.decoder_hidden_states if self.config.is_encoder_decoder else outputs.hidden_states
        # Virtual tokens before the text are taken off the last states only.
        return [*(hidden[:, -last.shape[1] :] for hidden in before[-self.layers : -1]), last]


def masked_lm_head_of(language_model: Any, architecture: Architecture) -> nn.Module:
    """Return what follows the encoder in a masked LM, as one module."""
    modules = [getattr(language_model, name) for name in architecture.masked_lm_head]
    return modules[0] if len(modules) == 1 else nn.Sequential(*modules)


class MaskClassifier(_Classifier):
    """A masked language model with the surface of a transformers classifier, and its family's names of modules."""

    pooling = "mask"
    label_words: Tensor
    mask_token: Tensor

    def __init__(self, language_model: Any, *, pretrained: bool = True) -> None:
        super().__init__(language_model.config, language_model.base_model_prefix)
        for name, module in language_model.named_children():
            self.add_module(name, module)
        self.pretrained_head = pretrained
        # In a tuple: its modules are registered above, under the family's names.
        self._masked_lm_head = (masked_lm_head_of(language_model, architecture_of(self.config.model_type)),)
        self.register_buffer("label_words", torch.zeros(self.config.num_labels, dtype=torch.int64))
        self.register_buffer("mask_token", torch.tensor(-1))

    @property
    def masked_lm_head(self) -> nn.Module:
        """Hidden vectors [m, H] to vocabulary logits [m, V]."""
        return self._masked_lm_head[0]

    def at_mask(self, hidden: Tensor, input_ids: Tensor) -> Tensor:
        """[B, H]: of hidden states [B, n, H] those at the mask of each row of ``input_ids`` [B, n]."""
        position = (input_ids == self.mask_token).to(torch.int64).argmax(1)
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), position]

    def forward(self, **inputs: Tensor) -> ClassifierOutput:
        """Logits [B, K] of the label words at the mask of each row."""
        hidden = self.base_model(**inputs)[0]
        vocabulary = self.masked_lm_head(self.at_mask(hidden, inputs["input_ids"]))
        return ClassifierOutput(vocabulary.index_select(1, self.label_words))


def without_pooler(encoder_class: Any) -> dict[str, bool]:
    """Keyword arguments with which ``encoder_class`` is built without its own pooler, where it has one."""
    known = "add_pooling_layer" in inspect.signature(encoder_class.__init__).parameters
    return {"add_pooling_layer": False} if known else {}


#: Depth of the embeddings and of everything that all layers share.
BELOW = 0


def depths(model: Any, sites: Sites, names: Iterable[str]) -> dict[str, int]:
    """Return the depth of every parameter of ``names``: 0 (``BELOW``) of embeddings, 1 to N of layers, N + 1 behind.

    Raises ModelError where layers share their weights (ALBERT).
    """
    layers: dict[str, int] = {}
    for site in sites.layers:
        if site.name in layers:
            message = f"the layers of {sites.architecture} share their weights: none can be treated on its own"
            hint = "use another family, or a method that does not tell layers apart"
            raise ModelError("layers-shared", f"{message}\n    -> {hint}")
        layers[site.name] = site.index + 1
    last_layer, base = next(reversed(layers)), f"{model.base_model_prefix}."
    # The encoder's own parts that come after its layers are registered after them.
    children = [f"{base}{name}." for name, _ in model.base_model.named_children()]
    holder = next(index for index, child in enumerate(children) if last_layer.startswith(child))
    above = tuple(children[holder + 1 :])
    found = {}
    for name in names:
        outside = len(layers) + 1 if name.startswith(above) or not name.startswith(base) else BELOW
        found[name] = next((depth for prefix, depth in layers.items() if name.startswith(f"{prefix}.")), outside)
    return found


def last_linear(model: nn.Module, head: Collection[str], outputs: int) -> str:
    """Name of the last linear with ``outputs`` outputs among parameters ``head``. ModelError without a bias."""
    new = frozenset(head)
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    found = [name for name, module in linears if module.out_features == outputs and f"{name}.weight" in new]
    if not found or model.get_submodule(found[-1]).bias is None:
        message = f"the head of {type(model).__name__} does not end with a linear of {outputs} outputs and a bias"
        raise ModelError("head-not-linear", f"{message}\n    -> give the method 'model: {{pooling: mean}}'")
    return found[-1]


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Mixed precision of the forward pass; weights stay fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put ``model`` in evaluation mode; afterwards each submodule gets its own flag back, not the root's."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


@contextlib.contextmanager
def answering_in_fp32(model: Any) -> Iterator[None]:
    """Let the output layer compute in fp32 under autocast: bf16 keeps three digits, and fp16 ends at 65,504."""
    encoder = {id(module) for module in model.base_model.modules()}
    linears = [module for module in model.modules() if isinstance(module, nn.Linear) and id(module) not in encoder]
    layer: Any = [linear for linear in linears if linear.out_features == model.config.num_labels][-1]
    plain = layer.forward

    def forward(vectors: Tensor) -> Tensor:
        with torch.autocast(vectors.device.type, enabled=False):
            return plain(vectors.float())  # type: ignore[no-any-return]

    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward

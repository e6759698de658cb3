"""Where methods act on an encoder: embeddings, layer inputs, the place after attention, weights, the head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regft_core.errors import ModelError
from regft_core.models.architectures import Architecture, LayerStack, architecture_of, prepared_mask


@dataclass(frozen=True, eq=False)
class LayerSite:
    """One layer as it is passed through; ``index`` counts over all stacks. Tensors are [B, n, H], XLNet's [n, B, H]."""

    index: int
    stack: str
    name: str
    module: nn.Module = field(repr=False)
    batch_dim: int
    after_attention: nn.Module = field(repr=False)
    pre_norm: bool = False


@dataclass(frozen=True)
class EmbeddingSite:
    """One look-up of word embeddings, one per stack; tensors are [B, n, E], or [n, B, E] when ``batch_dim`` is 1."""

    index: int
    stack: str
    batch_dim: int


@dataclass(frozen=True, eq=False)
class Sites:
    """The places of one model at which methods act; parameters are full names in the model.

    Attributes:
        embedding_layers: indices of the layers whose input is an embedding output.
        mixable: weight matrices that were pretrained, also the pooler's; not embeddings, convolutions or the new head.
        perturbable: weights and biases inside layers, without norms and without XLNet's segment embedding.
        head: newly drawn parameters.
    """

    architecture: str
    layers: tuple[LayerSite, ...]
    embedding_layers: tuple[int, ...]
    word_embedding: nn.Embedding
    mixable: tuple[str, ...]
    perturbable: tuple[str, ...]
    head: tuple[str, ...]
    token_types: bool
    layer_norms: frozenset[str] = field(repr=False)

    def layer_numbers(self, option: str, given: Literal["all"] | Sequence[int]) -> list[int]:
        """Sorted indices of layers; negative ones count from the top. ModelError, about ``option``, for others."""
        count = len(self.layers)
        chosen = range(count) if given == "all" else [i + count if i < 0 else i for i in given]
        if any(not 0 <= i < count for i in chosen):
            message = f"{option}: the model has layers 0 to {count - 1}, given {list(given)}"
            hint = f"give {-count} to {count - 1}; negative ones count from the top"
            raise ModelError("layer-out-of-range", f"{message}\n    -> {hint}")
        return sorted(set(chosen))

    def no_decay(self, name: str) -> bool:
        """Whether a parameter is exempt from weight decay: biases and the weights of norms."""
        return name in self.layer_norms or name.endswith("bias")


def find_sites(model: Any) -> Sites:
    """Return the sites of a loaded classifier. Raises ModelError."""
    architecture = architecture_of(getattr(model.config, "model_type", None), where=type(model).__name__)
    layers: list[LayerSite] = []
    embedding_layers = []
    for stack in architecture.stacks:
        embedding_layers.append(len(layers))
        for name, module in _calls(model, architecture, stack):
            after = module.get_submodule(stack.after_attention)
            site = LayerSite(len(layers), stack.name, name, module, architecture.batch_dim, after, stack.pre_norm)
            layers.append(site)
    names = [name for name, _ in model.named_parameters()]
    prefixes = tuple(dict.fromkeys(site.name + "." for site in layers))
    norms = frozenset(_norm_parameters(model))
    head = getattr(model, "regft_new_parameters", None) or tuple(n for n in names if n.startswith(architecture.head))
    embeddings = tuple("." + name for name in architecture.layer_embeddings)
    return Sites(
        architecture=architecture.name,
        layers=tuple(layers),
        embedding_layers=tuple(embedding_layers),
        word_embedding=model.get_input_embeddings(),
        mixable=_mixable(model, architecture, prefixes, head),
        perturbable=tuple(n for n in names if n.startswith(prefixes) and n not in norms and not n.endswith(embeddings)),
        head=tuple(head),
        token_types=takes_token_types(model),
        layer_norms=norms,
    )


TensorHook = Callable[[Tensor, LayerSite], Tensor]
EmbeddingHook = Callable[[Tensor, EmbeddingSite], Tensor]
#: A function, the layers that it acts in (None: all), and whether it acts in evaluation, too.
_Entry = tuple[Callable[[Tensor, Any], Tensor], frozenset[int] | None, bool]


class SiteHooks:
    """Calls functions on the tensors at layer sites and puts the results, of the same shape and dtype, in their place.

    They run in the order of registration, at the site indices ``layers`` (None: all), only in training mode unless
    ``always``. Random ones must be keyed by step and site: a layer may be recomputed.
    """

    def __init__(self, model: nn.Module, sites: Sites) -> None:
        self._model, self._sites = model, sites
        self._inputs, self._after, self._outputs, self._words = (list[_Entry]() for _ in range(4))
        self._handles: list[RemovableHandle] = []
        self._calls: dict[int, int] = {}
        by_layer: dict[nn.Module, list[LayerSite]] = {}
        for site in sites.layers:
            by_layer.setdefault(site.module, []).append(site)
        for module, of_layer in by_layer.items():
            after = of_layer[0].after_attention
            self._handles.append(module.register_forward_pre_hook(self._on_input(of_layer), with_kwargs=True))
            if of_layer[0].pre_norm:
                self._handles.append(after.register_forward_pre_hook(self._on_residual(of_layer)))
            else:
                self._handles.append(after.register_forward_hook(self._on_output(self._after, of_layer)))
            self._handles.append(module.register_forward_hook(self._on_output(self._outputs, of_layer)))
        # A pass that broke off half way must not shift the call counts of shared layers.
        base = getattr(model, "base_model", model)
        self._handles.append(base.register_forward_pre_hook(lambda *_: self._calls.clear()))

    def on_layer_input(self, function: TensorHook, layers: Iterable[int] | None = None, always: bool = False) -> None:
        """Call ``function(tensor, site)`` on what a layer receives as attention input and residual."""
        self._inputs.append(self._entry(function, layers, always))

    def on_after_attention(
        self, function: TensorHook, layers: Iterable[int] | None = None, always: bool = False
    ) -> None:
        """Call ``function(tensor, site)`` on what enters a layer's feed-forward block and its residual."""
        self._after.append(self._entry(function, layers, always))

    def on_layer_output(self, function: TensorHook, layers: Iterable[int] | None = None, always: bool = False) -> None:
        """Call ``function(tensor, site)`` on what a layer gives to the next."""
        self._outputs.append(self._entry(function, layers, always))

    def on_word_embedding(self, function: EmbeddingHook, always: bool = False) -> None:
        """Call ``function(tensor, site)`` on looked-up word embeddings; one that must not train them detaches."""
        if not self._words:
            table = self._model.base_model.get_input_embeddings().weight  # type: ignore[operator,union-attr]
            for module in self._model.modules():
                if isinstance(module, nn.Embedding) and module.weight is table:
                    self._handles.append(module.register_forward_hook(self._on_word))
        self._words.append((function, None, always))

    def on_embedding_output(self, function: TensorHook, always: bool = False) -> None:
        """Call ``function(tensor, site)`` on what a whole stack reads, in DeBERTa v2 before its convolution."""
        encoder: Any = getattr(self._model.base_model, "encoder", None)
        if getattr(encoder, "conv", None) is None:
            self.on_layer_input(function, self._sites.embedding_layers, always)
            return
        entries: list[_Entry] = [(function, None, always)]
        site = self._sites.layers[0]
        hook = partial(_replaced_input, lambda tensor: self._apply(entries, tensor, site))
        self._handles.append(encoder.register_forward_pre_hook(hook, with_kwargs=True))

    def remove(self) -> None:
        """Take all hooks off the model; calling it again does nothing."""
        while self._handles:
            self._handles.pop().remove()

    def _entry(self, function: TensorHook, layers: Iterable[int] | None, always: bool) -> _Entry:
        chosen = None if layers is None else frozenset(self._sites.layer_numbers("layers", list(layers)))
        return function, chosen, always

    def _apply(self, entries: list[_Entry], tensor: Tensor, site: LayerSite | EmbeddingSite) -> Tensor:
        for function, layers, always in entries:
            if (always or self._model.training) and (layers is None or site.index in layers):
                tensor = function(tensor, site)
        return tensor

    def _count(self, key: int) -> int:
        self._calls[key] = self._calls.get(key, 0) + 1
        return self._calls[key] - 1

    def _running(self, of_layer: list[LayerSite]) -> LayerSite:
        return of_layer[(self._calls.get(id(of_layer[0].module), 1) - 1) % len(of_layer)]

    def _on_input(self, of_layer: list[LayerSite]) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            site = of_layer[self._count(id(module)) % len(of_layer)]
            if not self._inputs:
                return None
            return _replaced_input(lambda tensor: self._apply(self._inputs, tensor, site), module, args, kwargs)

        return hook

    def _on_word(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        index = self._count(id(self._words))
        first = self._sites.layers[self._sites.embedding_layers[index]]
        return self._apply(self._words, output, EmbeddingSite(index, first.stack, first.batch_dim))

    def _on_output(self, entries: list[_Entry], of_layer: list[LayerSite]) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            if not entries:
                return None
            first = output[0] if isinstance(output, tuple) else output
            changed = self._apply(entries, first, self._running(of_layer))
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        return hook

    def _on_residual(self, of_layer: list[LayerSite]) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            if self._after:
                # The layer adds this very tensor to the feed-forward output later, so the change is made in place.
                # The functions get a copy: what they keep for the backward pass must not change under them.
                args[0].copy_(self._apply(self._after, args[0].clone(), self._running(of_layer)))

        return hook


def _replaced_input(
    change: Callable[[Tensor], Tensor], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a forward pass with another first tensor."""
    if args:
        return (change(args[0]), *args[1:]), kwargs
    key = "hidden_states" if "hidden_states" in kwargs else next(iter(kwargs))
    return args, {**kwargs, key: change(kwargs[key])}


def takes_token_types(model: Any) -> bool:
    """Whether the forward pass is given ``token_type_ids``: not in families without segments."""
    family = architecture_of(getattr(model.config, "model_type", None), where=type(model).__name__)
    return family.token_types and getattr(model.config, "type_vocab_size", 2) != 1


def classify(
    model: Any, batch_inputs: Mapping[str, Tensor], need_hidden: bool = False, padded: bool | None = None
) -> tuple[Tensor, Tensor | None]:
    """One forward pass: logits [B, K] and, if asked for, the last hidden states [B, n, H], which the head receives."""
    inputs = dict(batch_inputs)
    if not takes_token_types(model):
        inputs.pop("token_type_ids", None)
    base = model.base_model
    kept: list[Tensor] = []

    def finish_mask(_base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mask = kwargs.get("attention_mask")
        return None if mask is None else (args, {**kwargs, "attention_mask": prepared_mask(base, mask, padded)})

    # The last hook before the model: hooks that lengthen the mask (virtual tokens) have run. Heads still see [B, n].
    handles = [base.register_forward_pre_hook(finish_mask, with_kwargs=True)]
    if need_hidden:
        handles.append(base.register_forward_hook(lambda _base, _args, output: kept.append(output[0])))
    try:
        logits = model(**inputs).logits
    finally:
        for handle in handles:
            handle.remove()
    return logits.view(logits.shape[0], -1), kept[0] if kept else None


def _calls(model: Any, architecture: Architecture, stack: LayerStack) -> list[tuple[str, nn.Module]]:
    """Return (name, module) of every layer call of a forward pass through ``stack``."""
    prefix = f"{model.base_model_prefix}.{stack.layers}"
    holder = model.get_submodule(prefix)
    if architecture.name != "albert":
        return [(f"{prefix}.{index}", layer) for index, layer in enumerate(holder)]
    config, calls = model.config, []
    for index in range(config.num_hidden_layers):
        group = int(index / (config.num_hidden_layers / config.num_hidden_groups))
        for inner, layer in enumerate(holder[group].albert_layers):
            calls.append((f"{prefix}.{group}.albert_layers.{inner}", layer))
    return calls


def before_head(model: Any, architecture: Architecture) -> tuple[str, ...]:
    """Return the pretrained modules between encoder and head; of a model that answers at a mask they are the head."""
    return () if getattr(model, "pooling", None) == "mask" else architecture.pretrained_head


def _mixable(model: Any, architecture: Architecture, prefixes: tuple[str, ...], head: Iterable[str]) -> tuple[str, ...]:
    inside = [*architecture.projections, *filter(None, [architecture.pooler])]
    outside = [*(f"{model.base_model_prefix}.{name}" for name in inside), *before_head(model, architecture)]
    roots, raw = (*prefixes, *(f"{name}." for name in outside)), tuple("." + name for name in architecture.raw_matrices)
    modules = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
    linear = {f"{name}.weight" for name in modules if f"{name}.".startswith(roots)} - {*head}
    names = (name for name, _ in model.named_parameters())
    return tuple(name for name in names if name in linear or (name.endswith(raw) and name.startswith(prefixes)))


def _norm_parameters(model: nn.Module) -> Iterable[str]:
    # By class name as well: families have norms of their own that do not derive from torch's.
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm | nn.RMSNorm) or type(module).__name__.endswith(("LayerNorm", "RMSNorm")):
            for own, _ in module.named_parameters(recurse=False):
                yield f"{name}.{own}"

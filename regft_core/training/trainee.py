"""The trained model: a Hugging Face classifier plus whatever the regularisers attach to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regft_core.data.batches import Batch, read_in_batches
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.errors import ModelError
from regft_core.hooks.declare import Anchor, ParameterGroup, Setting
from regft_core.models.heads import last_linear
from regft_core.models.sites import SiteHooks, find_sites
from regft_core.rng import derive

if TYPE_CHECKING:
    from regft_core.kinds.regression import Scale
    from regft_core.models.features import Features
    from regft_core.models.source import ModelSource


@dataclass
class Pass:
    """The forward pass that is running; forward sites read it.

    Attributes:
        name: name of the pass, or of the first part when several run as one batch.
        parts: (pass name, first row, one past the last row) of each part of the batch.
        key: names and counters that determine every random draw of the pass.
    """

    name: str
    parts: tuple[tuple[str, int, int], ...]
    key: tuple[str | int, ...]
    attention_mask: Tensor
    segment: Tensor


@dataclass
class Trainee:
    """Model, its sites and hooks, and attached modules.

    Parameters go by their names in the plain model; under a parametrisation ``raw`` gives the tensor that is trained.
    ``anchors`` are copies of untouched weights, for regularisers that declared which they pull toward. ``features`` are
    kept vectors of the encoder, where it is frozen with the weights of its checkpoint and nothing hooks into the model.

    With a ``scale`` the model is trained on standardised targets, and so are its outputs meanwhile. Whatever enters or
    leaves is in the unit of the targets: :meth:`load_weights`, :meth:`as_learned`, :meth:`plain_weights`,
    :meth:`trained_weights` and :meth:`answers` convert, the weights through the output layer.
    """

    model: nn.Module
    tokenizer: Any
    source: ModelSource
    seed: int
    phase: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    current: Pass | None = None
    anchors: dict[Anchor, dict[str, Tensor]] = field(default_factory=dict)
    features: Features | None = None
    scale: Scale | None = None

    def __post_init__(self) -> None:
        self.sites = find_sites(self.model)
        if self.scale is not None:
            layer = self.output_layer()
            #: The weights that hold the scale of the targets where they are stored.
            self._scaled = f"{layer}.weight", f"{layer}.bias"
        self.hooks = SiteHooks(self.model, self.sites)
        self.attached = nn.ModuleDict()
        #: Whether methods act as a GPU wants it: on many tensors at once (few kernels; on a CPU it costs the cache) and
        #: without a look at values (which waits for all that is under way; on a CPU it is free, and can save work).
        self.grouped = self.device.type != "cpu"
        self.plain_names = tuple(name for name, _ in self.model.named_parameters())
        #: Tensors without pretrained values: the new head, and what the phase draws anew (:meth:`renew`).
        self.new = set(self.sites.head)

    def output_layer(self) -> str:
        """Name of the head's last linear, which gives the logits or the value. ModelError without a bias."""
        outputs: int = self.model.config.num_labels  # type: ignore[assignment,union-attr]
        return last_linear(self.model, self.sites.head, outputs)

    def module_of(self, name: str) -> tuple[nn.Module, str]:
        """The module that holds plain parameter ``name``, and the attribute's name."""
        path, _, attribute = name.rpartition(".")
        return attrgetter(path)(self.model) if path else self.model, attribute

    def raw(self, name: str) -> nn.Parameter:
        """The trained tensor behind plain parameter ``name``."""
        module, attribute = self.module_of(name)
        if parametrize.is_parametrized(module, attribute):
            return module.parametrizations[attribute].original  # type: ignore[union-attr,index,return-value]
        return getattr(module, attribute)

    def put_view(self, name: str, view: nn.Module) -> None:
        """Let ``view`` compute plain parameter ``name`` from its trained tensor in every pass."""
        parametrize.register_parametrization(*self.module_of(name), view)

    def take_views(self, names: Iterable[str], *, folded: bool) -> None:
        """Take the views of these parameters off; where ``folded`` they become what the views made of them."""
        for name in names:
            parametrize.remove_parametrizations(*self.module_of(name), leave_parametrized=folded)

    def parameter(self, name: str) -> nn.Parameter:
        """The trained tensor of a name of :meth:`named_trainable`."""
        if name.startswith("attached."):
            return self.attached.get_parameter(name.removeprefix("attached."))
        return self.raw(name)

    def named_raw(self) -> Iterator[tuple[str, nn.Parameter]]:
        """(plain name, trained tensor) of every parameter of the model."""
        return ((name, self.raw(name)) for name in self.plain_names)

    def names(self) -> set[str]:
        """Names of all parameters as hooks call them, frozen ones too: plain names, ``attached.`` before attached."""
        return {*self.plain_names, *(f"attached.{name}" for name, _ in self.attached.named_parameters())}

    def named_trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters that ask for gradients: the model's under their plain names, then attached ones.

        A tensor that an attached module shares with the model (a tied embedding) comes once.
        """
        seen: set[int] = set()
        attached = ((f"attached.{name}", parameter) for name, parameter in self.attached.named_parameters())
        for name, parameter in (*self.named_raw(), *attached):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    @property
    def layer_prefixes(self) -> tuple[str, ...]:
        """What the names of all tensors inside the encoder's layers begin with."""
        return tuple(f"{site.name}." for site in self.sites.layers)

    def mask_token(self, method: str) -> int:
        """The id of the mask token; ModelError where the tokenizer has none."""
        if self.tokenizer.mask_token_id is None:
            text = f"{method}: this tokenizer has no mask token; use a checkpoint of a masked LM"
            raise ModelError("mask-token-missing", text)
        return int(self.tokenizer.mask_token_id)

    def freeze_encoder(self) -> None:
        """Freeze every parameter of the model that is not newly drawn; a pretrained pooler is part of the encoder."""
        for name, parameter in self.named_raw():
            if name not in self.sites.head:
                parameter.requires_grad_(False)

    def undecayed(self, attached: str) -> list[ParameterGroup]:
        """Group the vectors (biases and norms) of an attached module, which weight decay leaves alone."""
        prefix = f"attached.{attached}."
        vectors = {name: p for name, p in self.named_trainable() if name.startswith(prefix) and p.dim() < 2}
        return [ParameterGroup(vectors, weight_decay=0.0)] if vectors else []

    @torch.no_grad()
    def drop_anchor(self, anchor: Anchor) -> None:
        """Keep a copy of the weights as they are now."""
        self.anchors[anchor] = {name: parameter.detach().clone() for name, parameter in self.named_raw()}

    def anchor(self, anchor: Anchor) -> dict[str, Tensor]:
        """Untouched weights by plain name: as loaded (``checkpoint``) or as the phase began (``start``).

        Raises KeyError where no active regulariser declared it in ``Declares.anchors``.
        """
        return self.anchors[anchor]

    @torch.no_grad()
    def renew(self, names: Iterable[str]) -> None:
        """Count tensors as new, like the head, once they are drawn; their untouched weights are the draw."""
        for name in names:
            self.new.add(name)
            for anchor in self.anchors.values():
                anchor[name] = self.raw(name).detach().clone()

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor], *, head: bool) -> None:
        """Start from stored ``weights`` (plain names); without ``head`` the newly drawn head stays.

        Raises KeyError when one of the model's tensors is missing.
        """
        weights = self.as_learned(weights) if head else weights
        for name, parameter in self.named_raw():
            if head or name not in self.sites.head:
                parameter.copy_(weights[name])
        for name, buffer in self.model.named_buffers():
            if name in weights:
                buffer.copy_(weights[name])

    def trained_weights(self) -> dict[str, Tensor]:
        """Plain names -> trained tensors (behind weight views), and the model's stored buffers, as they are stored."""
        buffers = {name for name, _ in self.model.named_buffers() if ".parametrizations." not in name}
        stored = {name: tensor for name, tensor in self.model.state_dict().items() if name in buffers}
        return self._as_stored({**dict(self.named_raw()), **stored})

    def attach(self, name: str, module: nn.Module) -> nn.Module:
        """Add a module that is trained and checkpointed with the model but not exported."""
        self.attached[name] = module.to(self.device)
        return self.attached[name]

    def attach_linear(self, name: str, stream: str, outputs: int, *, bias: bool = True) -> nn.Module:
        """Add a linear map of hidden states to ``outputs``, drawn as its family draws it from the seed's stream."""
        from regft_core.models.load import draw_parameters

        config: Any = self.model.config
        linear = nn.utils.skip_init(nn.Linear, config.hidden_size, outputs, bias=bias)
        draw_parameters([linear], config, derive(self.seed, stream))
        return self.attach(name, linear)

    def state(self) -> dict[str, Tensor]:
        """Everything that a checkpoint needs: raw tensors, buffers, attached modules; tied parameters once."""
        unique: dict[int, tuple[str, Tensor]] = {}
        for part, module in {"model": self.model, "attached": self.attached}.items():
            for name, tensor in module.state_dict(keep_vars=True).items():
                unique.setdefault(id(tensor), (f"{part}/{name}", tensor))
        return {name: tensor.detach() for name, tensor in unique.values()}

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Copy :meth:`state` back in place, so that ties and optimiser references survive."""
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])

    def plain_weights(self) -> dict[str, Tensor]:
        """The model's state dict as it is stored, after every weight view was folded (see ``Regulariser.export``)."""
        return self._as_stored(self.model.state_dict())

    def answers(self, outputs: Any) -> Any:
        """``outputs`` [n, K] of the model in the unit of the targets."""
        return outputs if self.scale is None else self.scale.in_units(outputs)

    def as_learned(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Stored ``weights`` of all of the model, of an earlier phase, as they are while this one trains."""
        if self.scale is None:
            return weights
        weight, bias = self._scaled
        standardised = {weight: weights[weight].double() / self.scale.deviation}
        return {**weights, **standardised, bias: self.scale.learned(weights[bias].double())}

    def _as_stored(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of ``tensors`` on the CPU, with the scale of the targets in the output layer."""
        weights = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        if self.scale is not None:
            weight, bias = self._scaled
            weights[weight] = (weights[weight].double() * self.scale.deviation).to(weights[weight].dtype)
            weights[bias] = self.scale.in_units(weights[bias].double()).to(weights[bias].dtype)
        return weights

    def batches(self, examples: Sequence[Example], setting: Setting, rows_per_example: int = 1) -> Iterator[Batch]:
        """The batches of evaluation of raw ``examples``, whose numbers are their places."""
        limit, reading = setting.max_length or self.tokenizer.model_max_length, setting.reading
        encoded = encode(examples, self.tokenizer, limit, rows_per_example=rows_per_example, reading=reading)
        yield from read_in_batches(encoded, self.tokenizer, self.device, setting.kind)

    def generator(self, *key: str | int, on_host: bool = False) -> torch.Generator:
        """A generator on the training device (or ``on_host``), determined by the seed, the phase and ``key``."""
        generator = torch.Generator(device="cpu" if on_host else self.device)
        generator.manual_seed(derive(self.seed, self.phase, *key))
        return generator

    def running(self, *names: str) -> Pass | None:
        """The pass that is running, where it has one of these names."""
        return self.current if self.current is not None and self.current.name in names else None

"""BitFit: only the biases and the head are trained (Ben Zaken et al., ACL 2022).

Every matrix and every scale of a norm keeps its pretrained value. ``terms: all`` trains all biases, those of norms
included; ``terms: query_and_intermediate`` those of the queries and of the first feed-forward map (b_q and b_m2 of the
paper), and the pooler's, as the release does. ``terms: norms`` trains scales and biases of norms alone.

Decisions:
- everything that is newly drawn is trained whole: the head, and layers that another method draws anew (Re-init).
- a bias is a tensor whose name ends with "bias". MPNet's table of relative positions is none. XLNet's r_w_bias is the
  bias of its queries, DeBERTa's q_bias that of its own; biases of positions are neither b_q nor b_m2.
- ModernBERT and EuroBERT have no bias outside the head, GTE none in its first feed-forward map. They are refused.
- the optimiser and the epochs are the protocol's; the release takes AdamW without decay for 16 epochs. The protocol
  decays no bias either.
- ``chosen: random`` (a control) trains as many single entries of the pretrained matrices instead, drawn once, without
  decay, like the row "rand_100k" of the paper's table 3. The release draws from all tensors of the encoder. Here the
  embeddings stay out: most of their rows are of tokens that no text has, so fewer entries would train than are drawn.
- each matrix gives entries in proportion to its size. Their gradient is masked before clipping, so that the norm is
  that of what is trained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Flip, Handed, ParameterGroup, Regulariser, StrictModel
from regft_core.hooks.declare import Step, Tensor, Trainee
from regft_core.lazy import torch

#: How the families call the biases of the queries and of the first feed-forward map.
QUERY = (".query.bias", ".query_proj.bias", ".q_proj.bias", ".q_lin.bias", ".q.bias", ".q_bias", ".r_w_bias")
INTERMEDIATE = (".intermediate.dense.bias", ".fc1.bias", ".lin1.bias", ".ffn.bias", ".layer_1.bias")
#: Encoder families without biases outside the head, and those without one of the two of the subset.
WITHOUT = ("eurobert", "gemma3_text", "modernbert", "qwen3")
WITHOUT_SUBSET = (*WITHOUT, "gte")

Terms = Literal["all", "query_and_intermediate", "norms"]


class BitFitConfig(StrictModel):
    terms: Terms = Field("all", description="which biases are trained; norms: scales and biases of the norms")
    chosen: Literal["bias", "random"] = Field("bias", description="random: as many entries of the matrices (a control)")


def bias_terms(names: Iterable[str], terms: Terms, norms: Collection[str] = ()) -> list[str]:
    """Names of the tensors that ``terms`` chooses, of ``norms`` those of norms; none where the encoder lacks one."""
    if terms == "norms":
        return [name for name in names if name in norms]
    biases = [name for name in names if name.endswith("bias")]
    if terms == "all":
        return biases
    if not all(any(name.endswith(ends) for name in biases) for ends in (QUERY, INTERMEDIATE)):
        return []
    return [name for name in biases if name.endswith((*QUERY, *INTERMEDIATE)) or "pooler" in name]


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """``total`` split in proportion to ``sizes``, in whole numbers that add up to it and exceed no size."""
    whole, before, counts = sum(sizes), 0, []
    for size in sizes:
        counts.append(total * (before + size) // whole - total * before // whole)
        before += size
    return counts


class BitFit(Regulariser):
    name = "bitfit"
    Config = BitFitConfig
    off = None  # the matrices are frozen in any form
    controls = {"random": Flip({"chosen": "random"}, "as many entries of the matrices are trained, drawn at random")}
    sources = {
        "terms": "code: benzakenelad/BitFit run_glue.py:39",
        "chosen": "ours: bias is the method, random its control",
    }

    @classmethod
    def declare(cls, options: BitFitConfig) -> Declares:
        refused = {"all": WITHOUT, "query_and_intermediate": WITHOUT_SUBSET, "norms": ()}[options.terms]
        return Declares(trains_encoder=True, description=Description(refused_architectures=refused))

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.masks: dict[str, Tensor] = {}
        new = frozenset(trainee.new)
        pretrained = [name for name, _ in trainee.named_raw() if name not in new]
        biases = bias_terms(pretrained, self.options.terms, trainee.sites.layer_norms)
        if not biases:
            subset = {"query_and_intermediate": "biases of queries and of the first feed-forward map", "norms": "norms"}
            what = subset.get(self.options.terms, "biases")
            raise ModelError(
                "encoder-does-not-fit",
                f"bitfit: this {trainee.sites.architecture} has no {what} outside its head; use another encoder, "
                "or lora",
            )
        if self.options.chosen == "random":
            count = sum(trainee.raw(name).numel() for name in biases)
            self.masks = self._drawn([name for name in trainee.sites.mixable if name not in new], count)
        trained = self.masks if self.masks else frozenset(biases)
        for name in pretrained:
            if name not in trained:
                trainee.raw(name).requires_grad_(False)

    def _drawn(self, names: Sequence[str], count: int) -> dict[str, Tensor]:
        """Masks with ``count`` entries in all, by name."""
        masks = {}
        weights = [self.trainee.raw(name) for name in names]
        for name, weight, share in zip(names, weights, shares([w.numel() for w in weights], count), strict=True):
            generator = self.trainee.generator("bitfit.chosen", name)
            places = torch.randperm(weight.numel(), generator=generator, device=weight.device)[:share]
            mask = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
            masks[name] = mask.index_fill_(0, places, True).view(weight.shape)
        return masks

    def parameter_groups(self) -> list[ParameterGroup]:
        """The control's matrices lose the protocol's decay: it would move entries that are not trained."""
        if not self.masks or not self.setting.training.weight_decay:
            return []
        return [ParameterGroup({name: self.trainee.raw(name) for name in self.masks}, weight_decay=0.0)]

    def gradient_masks(self, step: Step) -> Iterator[tuple[str, Tensor | float]]:
        yield from self.masks.items()

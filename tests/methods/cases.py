"""With which options, in which phase and after which phases the contract runs each regulariser.

No method is named here. A regulariser runs alone with its defaults: in fine-tuning, or in an earlier
phase where it says that it does not fine-tune. Where the defaults need an earlier phase, or where
they never fine-tune, a YAML of ``pipelines/methods`` that uses the regulariser says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import ValidationError

from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Declares, Handed
from regft_core.hooks.description import Description
from regft_core.hooks.refusals import prediction_problems
from regft_core.hooks.registry import Entry, discover
from regft_core.schema.method import FINETUNE, Phase
from regft_core.schema.tasks import TaskConfig
from tests.methods.chain import METHODS, method, phase, runner
from tests.methods.harness import TRAINING, Bench
from tests.small_project import PAIRS

REGISTRY = discover()
EARLIER = "earlier"
_EARLIER: dict[tuple[Any, ...], tuple[dict[str, Handed], dict[str, torch.Tensor] | None]] = {}


@dataclass(frozen=True)
class Case:
    """One regulariser, alone in ``phase``, after ``before``."""

    name: str
    phase: Phase
    before: tuple[Phase, ...] = ()

    @property
    def cls(self) -> type[Regulariser]:
        return REGISTRY[self.name]

    @property
    def options(self) -> Any:
        return dict(self.phase.regularisers)[self.name]

    @property
    def declares(self) -> Declares:
        return self.cls.declare(self.options)

    @property
    def description(self) -> Description:
        return self.declares.description

    @property
    def final(self) -> bool:
        return self.phase.name == FINETUNE

    @property
    def key(self) -> str:
        return f"{self.name}-{'finetune' if self.final else 'earlier'}"

    def refused(self, architecture: str, form: Mapping[str, Any]) -> bool:
        """Whether the class says that it cannot act there; other tests check that it says why."""
        kind, separately = form.get("kind", "classification"), form.get("separately", False)
        return (
            architecture in self.description.refused_architectures
            or (separately and "separately" in self.description.refused)
            or ("reading" in form and "windows" in self.description.refused)
            or bool(self.cls.check_task(self.options, task(kind)))
        )

    def bench(self, architecture: str = "bert", *, masked_lm: bool = True, training: Any = None, **more: Any) -> Bench:
        """A bench of the phase; the phases before it are run first, on the same encoder and form."""
        own = training or self.phase.training.model_copy(update={"dropout": TRAINING.dropout})
        more.setdefault("validation", self.phase.data.split < 1.0)
        given = {**more}
        if self.before:
            form = {
                k: more[k]
                for k in ("kind", "pair", "labels", "seed", "pooling", "separately", "max_length", "reading")
                if k in more
            }
            handed, weights = self._earlier(architecture, masked_lm, form)
            given = {"handed": handed, "start": weights, **more}
        options = self.options.model_dump(exclude_unset=True)
        return Bench(
            [(self.name, options)],
            architecture=architecture,
            masked_lm=masked_lm,
            training=own,
            phase=self.phase.name,
            **given,
        )

    def _earlier(self, architecture: str, masked_lm: bool, form: dict[str, Any]) -> tuple[Any, Any]:
        """What the phases before hand over, and the weights to start from; run once per encoder and form."""
        key = (self.key, architecture, masked_lm, *sorted(form.items(), key=lambda item: item[0]))
        if key not in _EARLIER:
            once = [replace(given, repeat=None) for given in self.before]
            own = runner(architecture, masked_lm=masked_lm, **form)
            done = own.run(once, steps=1)
            handed = {name: ran.handed for name, ran in done.items()} | dict(own.inputs(self.phase, done).handed)
            weights = None if self.phase.start == "checkpoint" else done[self.phase.start].handed.weights
            _EARLIER[key] = handed, weights
        return _EARLIER[key]


#: Kind -> labels, range and metric of a task of it.
_DECLARED: dict[str, tuple[Any, Any, str]] = {
    "classification": (("a", "b"), None, "accuracy"),
    "multi_label": (("a", "b"), None, "f1_macro"),
    "ordinal": (("a", "b", "c"), None, "kappa_quadratic"),
    "regression": (None, (0.0, 5.0), "pearson"),
}


def task(kind: str) -> TaskConfig:
    """A task of a kind, to ask regularisers about."""
    labels, limits, metric = _DECLARED[kind]
    words = {"template": "{text} [MASK] {text_pair}", "words": {"a": "yes", "b": "no"}}
    own = {"kind": kind, "labels": labels, "range": limits, "metrics": [metric], "primary": metric}
    return TaskConfig.model_validate({**PAIRS, **own, **({"prompt": words} if kind == "classification" else {})})


def _alone(name: str) -> Case | None:
    """The regulariser with its defaults and nothing before it."""
    cls = REGISTRY[name]
    try:
        options = cls.Config()
    except ValidationError:
        return None
    declares = cls.declare(options)
    if declares.needs or not declares.active:
        return None
    split = 0.8 if declares.validation_share else 1.0
    for where in (FINETUNE, EARLIER):
        given = phase([(name, {})], name=where, split=split)
        if not (cls.check_options(options, given) or prediction_problems([Entry(cls, options)], given)):
            return Case(name, given)
    return None


def _declared(name: str) -> Case | None:
    """A phase with the regulariser in ``pipelines/methods``: fine-tuning first, the file of its own name first."""
    found = []
    for listed in map(method, METHODS):
        for index, given in enumerate(listed.phases):
            options = dict(given.regularisers).get(name)
            if options is not None and REGISTRY[name].declare(options).active:
                place = (given.name != FINETUNE, listed.name != name, index, listed.name)
                found.append((place, given, options))
    if not found:
        return None
    (_, _, index, chosen), given, options = min(found, key=lambda entry: entry[0])
    own = [(name, options.model_dump(exclude_unset=True))]
    alone = phase(own, name=given.name, start=given.start, split=given.data.split, **_epochs(given))
    return Case(name, alone, method(chosen).phases[:index])


def _epochs(given: Phase) -> dict[str, Any]:
    """A phase that trains nothing (a merge, a fitted head) stays one."""
    return {} if given.training.epochs else {"epochs": 0}


def cases() -> list[Case]:
    """Every regulariser with its defaults where they run, and fine-tuning wherever it can."""
    listed = []
    for name in sorted(REGISTRY):
        found = [case for case in [_alone(name)] if case is not None]
        if not any(case.final for case in found):
            declared = _declared(name)
            found += [declared] if declared is not None and (declared.final or not found) else []
        assert found, f"'{name}' does not run with its defaults, and no pipelines/methods/*.yaml uses it"
        listed += found
    return listed


CASES = cases()
#: Regulariser -> other options that change what a step runs, draws or keeps, for the laws of steps.
OTHERS: dict[str, list[dict[str, Any]]] = {
    "child_tuning": [{"mask": "fixed", "share": 0.3}],
    "dps": [{"drop": 0.3, "block": 0.34, "mode": mode} for mode in ("dense", "mix")],
    "mask_tuning": [
        {"alpha": 0.0},
        {"alpha": 0.0, "fill": "mask"},
        {"coupling": "separate"},
        {"fill": "sample", "selection": "bernoulli"},
    ],
    "masked_lm": [{"trains": "head"}],
    "sage": [{"base": "adamw"}],
    "sam": [{"adaptive": True}, {"direction": "random"}],
    "smart": [{"steps": 2}, {"direction": "random"}, {"weight": 0.0, "proximal": 1.0}, {"variant": "released"}],
    "tdt": [
        {"variant": "released", "w_rank": 2.0},
        {"w_distill": 0.0},
        {"w_rank": 0.0},
        {"mode": "hard"},
        {"perturbation": "gaussian"},
        {"confidence": "shuffled"},
    ],
    "weight_mixup": [
        {"attention": "joint"},
        {"attention": "random"},
        {"implicit": "none"},
        {"inner_gradient": "reused", "interval": 2},
        {"variant": "released"},
        {"variant": "released", "interval": 2},
    ],
}


def _other(name: str, options: dict[str, Any]) -> Case:
    fitting = phase([(name, options)])
    cls, (_, validated) = REGISTRY[name], fitting.regularisers[0]
    if cls.check_options(validated, fitting):
        split = 0.8 if cls.declare(validated).validation_share else 1.0
        fitting = phase([(name, options)], name=EARLIER, split=split)
    return Case(name, fitting)


OTHER_CASES = [_other(name, options) for name, table in OTHERS.items() for options in table]

"""Warnings about methods that are valid and hardly meant: settings of absurd size, methods that change nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from regft_core.names import listing
from regft_core.schema.method import Method
from regft_core.schema.training import TrainingConfig

#: Times its default from which an option is said; without a default other than 0, the value itself.
MANY_TIMES = 10_000
#: Learning rates from here on make encoders diverge; the schema refuses those above 1.
LARGE_RATE = 0.1


def odd_methods(
    methods: Mapping[str, Method], on_tasks: Sequence[Method], shared: TrainingConfig, known: Collection[str]
) -> Iterator[str]:
    """A line for each odd value, with the methods that have it, and for each method that changes nothing.

    ``on_tasks``: methods as a task changes them; ``known``: names of methods that may be plain.
    """
    rates: dict[float, list[str]] = defaultdict(list)
    options: dict[tuple[str, float, float], list[str]] = defaultdict(list)
    for method in (*methods.values(), *on_tasks):
        for phase in method.phases:
            rates[phase.training.learning_rate].append(method.name)
            for name, chosen in phase.regularisers:
                for option, field in type(chosen).model_fields.items():
                    value, usual = getattr(chosen, option), _usual(field.default)
                    if isinstance(value, float) and abs(value) > MANY_TIMES * usual:
                        options[f"{name}.{option}", value, usual].append(method.name)
    for rate, names in rates.items():
        if rate >= LARGE_RATE:
            yield f"training.learning_rate is {rate:g} ({_of(names)}): weights will diverge; usual are 1e-6 to 1e-2"
    for (option, value, usual), names in options.items():
        yield f"{option} is {value:g} ({_of(names)}), and {usual:g} is usual; lower it unless that is meant"
    changed = {method.name for method in on_tasks if any(phase.explicit for phase in method.phases)}
    for name, method in methods.items():
        (phase, *others) = method.phases
        plain = not others and not phase.regularisers and not phase.explicit and not method.config.model
        if plain and phase.training == shared and name not in {*known, *changed}:
            yield f"method '{name}' has no regulariser and no setting of its own, so it is plain fine-tuning; remove it"


def _usual(default: object) -> float:
    """The size that values are compared with: that of the default, 1 where there is none or it is 0."""
    return abs(default) if isinstance(default, float) and default else 1.0


def _of(names: Iterable[str]) -> str:
    return listing(dict.fromkeys(names))

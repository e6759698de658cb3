"""One arm, or two, on their own: what most tests of the bootstrap need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate

Arm = Mapping[int, npt.ArrayLike]


def one_arm(arm: Arm, labels: npt.ArrayLike, metric: Any, **settings: Any) -> Estimate:
    """The mean over the seeds of ``arm``; ``settings`` as of ``Arms``."""
    return Arms({"a": arm}, labels, metric, **settings).one("a")


def paired_difference(a: Arm, b: Arm, labels: npt.ArrayLike, metric: Any, **settings: Any) -> Estimate:
    """The mean of metric(a) - metric(b); ``settings`` as of ``Arms``."""
    return Arms({"a": a, "b": b}, labels, metric, **settings).difference("a", "b")

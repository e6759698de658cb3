"""A method of a user's own, as ``tests/wheel/run`` puts it into a project: longer gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from regft_core.hooks.base import Declares, Regulariser
from regft_core.hooks.description import Flip
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    from regft_core.training.step import Step


class ShakyConfig(StrictModel):
    """Options."""

    sigma: float = Field(0.5, ge=0)


class Shaky(Regulariser):
    """Gradients times a number."""

    name = "shaky"
    Config = ShakyConfig
    off: ClassVar[dict[str, Any]] = {"sigma": 0.0}
    controls: ClassVar[dict[str, Flip]] = {"double": Flip({"sigma": 1.0}, "twice as much")}

    @classmethod
    def declare(cls, options: ShakyConfig) -> Declares:
        return Declares(active=options.sigma > 0)

    def change_gradients(self, step: Step) -> None:
        for _, parameter in step.trainee.named_trainable():
            if parameter.grad is not None:
                parameter.grad.mul_(1 + self.options.sigma)

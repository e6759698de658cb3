"""An exported model from a tiny trained project, shared with ``tests/stages``."""

from tests.stages.conftest import exported, trained

__all__ = ["exported", "trained"]

"""An exported run whose regulariser answers in place of a model (a bag of words, a constant, an average).

``regft.json`` names the regulariser and its options, ``kept.safetensors`` holds what it kept: terms and numbers, from
which loading runs no code. Where it reads the encoder, that is an ordinary model in the folder ``encoder``, with a head
that nothing asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.disk.files import atomic_directory
from regft_core.disk.tensors import read_tensors, write_tensors
from regft_core.errors import ExportMismatch, ModelError, StoreError, text_of
from regft_core.evaluate.evaluated import require_finite
from regft_core.hooks.base import Regulariser
from regft_core.hooks.declare import Setting
from regft_core.hooks.phase_entries import Entry, answers_for_model
from regft_core.hooks.registry import discover
from regft_core.kinds import find
from regft_core.models.export_record import Served, read_served, refuse_foreign, write_served
from regft_core.schema.method import FINETUNE
from regft_core.schema.training import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.training.trainee import Trainee

KEPT, ENCODER = "kept.safetensors", "encoder"
#: Largest difference of answers through a loaded encoder, which may run on another device, from those of the run.
NEAR = 1e-4


class Answers:
    """A fitted regulariser that answers by itself.

    Attributes:
        served: how its inputs are read, and its labels.
        trainee: the encoder that it reads; None where it reads none.
    """

    def __init__(
        self, regulariser: Regulariser, kept: Mapping[str, Tensor], served: Served, trainee: Trainee | None = None
    ) -> None:
        self.served, self.trainee = served, trainee
        self._regulariser, self._kept = regulariser, kept

    def logits(self, examples: Sequence[Example]) -> npt.NDArray[np.float64]:
        """[n, K] for ``examples``, as they were scored. Raises RunFailed when one is not finite."""
        found = self._regulariser.predict(self.trainee, self._kept, examples)
        hint = "check the rows for texts without words, or use another method"
        require_finite(found, [example.idx for example in examples], self._regulariser.name, hint)
        return found.astype(np.float64)


def write_answers(
    directory: Path,
    served: Served,
    kept: Mapping[str, Tensor],
    card: str,
    check: Sequence[Example],
    expected: npt.NDArray[Any],
    write_encoder: Callable[[Path], object] | None = None,
) -> Path:
    """Write what a run's regulariser kept, and a model card; returns ``directory``.

    The directory appears complete or not at all, after it was loaded again and gave ``expected`` [n, K] for the
    examples ``check``.

    Args:
        served: content of ``regft.json``, with ``answered_by``.
        kept: tensors of that regulariser, under its own names.
        write_encoder: writes the encoder into a folder, where one is read.

    Raises:
        ExportMismatch: the written directory answers differently; nothing is left behind.
        ModelError: ``directory`` holds something else.
        StoreError: it cannot be written.
    """
    refuse_foreign(directory, KEPT)
    with atomic_directory(directory) as temporary:
        write_tensors(temporary / KEPT, kept)
        write_served(temporary, served)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        if write_encoder is not None:
            write_encoder(temporary / ENCODER)
        logits, near = load_answers(temporary).logits(check), NEAR if write_encoder else 0.0
        if not np.allclose(logits, expected, rtol=0.0, atol=near):
            raise ExportMismatch(
                "export-differs",
                f"export to {directory}: what was written answers differently; nothing was written\n"
                "    -> report it: the method's fitted tensors do not survive being written",
            )
    return directory


def load_answers(directory: Path, device: str = "cpu") -> Answers:
    """The record of ``write_answers``; its encoder, if it reads one, on ``device``.

    Raises ModelError when a file is missing, damaged, or of another version.
    """
    served = read_served(directory)
    if served is None or served.answered_by is None:
        raise _wrong(directory, "regft.json does not say what answers")
    name = served.answered_by.regulariser
    cls = discover().get(name)
    if cls is None:
        raise _wrong(directory, f"there is no regulariser '{name}' in this version")
    try:
        options = cls.Config.model_validate(served.answered_by.options)
        kept = read_tensors(directory / KEPT)
    except (ValidationError, StoreError) as error:
        raise _wrong(directory, text_of(error)) from error
    if (entry := answers_for_model([Entry(cls, options)])) is None:
        raise _wrong(directory, f"'{name}' does not answer by itself")
    setting = Setting(
        kind=served.kind,
        num_labels=len(find(served.kind).output_names(served.labels)),
        seed=0,
        training=TrainingConfig(),
        max_length=served.max_length,
        reading=Reading(served.instruction, served.windows, served.stride),
    )
    trainee = _loaded_encoder(directory / ENCODER, device) if entry.declares.reads == "encoder" else None
    return Answers(cls(options, setting), kept, served, trainee)


def _loaded_encoder(directory: Path, device: str) -> Trainee:
    import torch

    from regft_core.models.exported_folder import load_with_tokenizer
    from regft_core.training.trainee import Trainee

    model, tokenizer = load_with_tokenizer(directory)
    # No prediction reads the checkpoint that training began with.
    return Trainee(model.to(device).eval(), tokenizer, None, 0, FINETUNE, torch.device(device))  # type: ignore[arg-type]


def _wrong(directory: Path, why: str) -> ModelError:
    return ModelError("bad-export", f"{directory}: cannot be loaded: {why}\n    -> export it again")

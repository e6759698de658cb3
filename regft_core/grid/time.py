"""How long the grid takes: declared passes times the seconds of a step, measured on this machine once or assumed.

A worker process measures, so that the one that plans keeps its threads and opens no GPU context.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from regft_core.catalogue import OPTIMISERS
from regft_core.data.splits import of_seed
from regft_core.disk.canonical import sha256_json
from regft_core.disk.files import write_json
from regft_core.disk.reading import read_json
from regft_core.errors import RegftError, RunFailed, StoreError
from regft_core.grid.cell_keys import cached_seeds, grid_rows
from regft_core.grid.executors import JobsFailed, is_remote, run_all
from regft_core.grid.jobs import prepared_devices
from regft_core.grid.measured_lengths import known_lengths
from regft_core.hooks import compose
from regft_core.hooks.compose import answers_without_encoder
from regft_core.hooks.registry import discover
from regft_core.models.devices import cores, visible_devices
from regft_core.models.source import encoder_present, encoder_weights, resolve_model
from regft_core.names import duration, listing, plural
from regft_core.schema.params import ExecutionConfig
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.settings.cost import PlanRow, plan_rows
from regft_core.settings.project import Cell, Project

#: A grid of fewer seconds on an assumed core is not worth measuring.
SHORTEST = 60.0
#: Times that were measured, in the cache folder of this host: they are the same for every project.
FILE = "times.json"
#: Tokens of a batch that is timed on a CPU, where time is linear in rows from some hundred tokens on.
_TOKENS = 512
#: Operations per second that an A100 or H100 is assumed to sustain in training, by precision; and one CPU core in fp32.
GPU_SPEED: dict[str, float] = {"fp32": 2.5e13, "bf16": 1.2e14, "fp16": 1.2e14}
CORE_SPEED = 3.0e10
#: Time of a forward pass in that of a training step.
FORWARD = 1 / 3


class SetSize(NamedTuple):
    """Rows of a set, and tokens of one on average."""

    rows: float
    tokens: float


#: Task, encoder -> sizes of its sets, ``train`` among them.
Sizes = Callable[[str, EncoderConfig], Mapping[str, SetSize]]


@dataclass(frozen=True)
class Estimate:
    """Time of what is still to train: ``seconds`` on the wall, with ``parallel`` runs at a time.

    ``cells``: cell -> seconds of one worker; ``runs``: for one seed alone. ``unknown``: runs that are not counted;
    ``note``: why the speed is assumed, with the remedy.
    """

    seconds: float
    cells: Mapping[Cell, float] = field(repr=False)
    runs: Mapping[Cell, float] = field(repr=False)
    unknown: int
    parallel: int
    speed: str = ""
    note: str = ""

    def line(self) -> str:
        """``time: about 14 min (measured on this machine, 2 runs at a time)``."""
        about = f"about {duration(self.seconds)} ({self.speed}, {plural(self.parallel, 'run')} at a time)"
        unknown = f"{plural(self.unknown, 'run')} of unknown length"  # a part is never printed as the whole
        parts = [about] * bool(self.cells) + [unknown] * bool(self.unknown)
        note = f"\n  {self.note}" if self.note and parts else ""
        return f"time: {', and '.join(parts) or 'nothing to train'}{note}"


def estimate(project: Project, rows: Sequence[PlanRow] | None = None, sizes: Sizes | None = None) -> Estimate:
    """Return the time of a project's grid, by default of what ``work/`` and the run store lack; may measure a step."""
    rows = grid_rows(project) if rows is None else rows
    sizes = cache(sizes or partial(set_sizes, project))
    devices, elsewhere, _ = _places(project.params.execution)
    absent = [model.name for model in project.encoders() if not encoder_present(model, project.root)]
    on_cpu = devices == ["cpu"] and not absent
    rough = spend(project, rows, lambda cell: assumed(project, cell.task, on_cpu=on_cpu))
    if elsewhere:
        why = f"executor '{project.params.execution.executor}' trains on other machines"
    elif absent:
        why = f"encoder {listing(absent)} is not on this disk\n    -> fetch it: regft fetch; of a preset: --preset NAME"
    elif on_cpu and rough.cells and not rough.unknown and rough.seconds < SHORTEST:
        why = f"too short (under {duration(SHORTEST)})"
    else:
        try:
            timed = spend(project, rows, lambda cell: measured(project, cell, sizes), sizes)
            return replace(timed, speed="measured on this machine")
        except RegftError as error:
            why = str(error)
    speed = f"assumed speed of {'a core' if on_cpu else 'one A100 or H100'}"
    return replace(rough, speed=speed, note=f"not measured: {why}")


def still_to_train(project: Project, stale: Collection[str]) -> Estimate | None:
    """Return the time of the ``stale_cells`` of a plan; None where their runs are in the run store."""
    every = set(project.params.grid.seeds)
    project = project.snapshot()
    rows = plan_rows(project, lambda c: cached_seeds(project, c) if c.directory in stale else every)
    return estimate(project, rows) if any(row.to_train for row in rows) else None


def spend(
    project: Project, rows: Sequence[PlanRow], times: Callable[[Cell], float | None], sizes: Sizes | None = None
) -> Estimate:
    """Return what the rows' cost takes; ``times``: cell -> seconds of a step per token of its batch, None: unknown."""
    registry, sizes = discover(), sizes or unprepared
    cells, runs, unknown = dict[Cell, float](), dict[Cell, float](), 0
    for row in rows:
        cell, method, shared = row.cell, project.method(row.cell.method, row.cell.task), project.shared(row.cell.task)
        free = answers_without_encoder(compose.entries(registry, method.finetune.regularisers)) is not None
        step = 0.0 if free else None if row.cost is None else times(cell)
        if step is None or row.cost is None:
            unknown += row.to_train
            continue
        training, sets = method.training, sizes(cell.task, method.encoder(project.model(cell.task)))
        batch = shared.batch_size * sets["train"].tokens * step
        scores = {name: size.rows * size.tokens * step * FORWARD for name, size in sets.items() if name != "train"}
        epochs = training.epochs * scores.get("dev", 0.0) if training.judges_epochs else 0.0
        runs[cell] = row.cost * batch + epochs + sum(scores.values())
        if row.to_train:
            cells[cell] = row.to_train * runs[cell]
    _, _, parallel = _places(project.params.execution)
    wall = max([sum(cells.values()) / parallel, *(runs[cell] for cell in cells)])
    return Estimate(wall, cells, runs, unknown, parallel)


def assumed(project: Project, task: str, *, on_cpu: bool) -> float | None:
    """Return seconds per token at the assumed speed, 6 operations per weight; None for an unknown encoder."""
    weights = encoder_weights(project.model(task).name, project.root)
    speed = CORE_SPEED if on_cpu else GPU_SPEED[project.params.training.precision]
    return None if weights is None else 6 * weights / speed


def measured(project: Project, cell: Cell, sizes: Sizes) -> float:
    """Return seconds per token of a step of a cell, measured once on this host; raises RunFailed if that failed."""
    execution, file = project.params.execution, cache_folder() / FILE
    method = project.method(cell.method, cell.task)
    encoder, length = method.encoder(project.model(cell.task)), 16
    while length < sizes(cell.task, encoder)["train"].tokens:
        length *= 2
    training = project.shared(cell.task).model_copy(update={"precision": method.training.precision})
    request: dict[str, Any] = {
        "encoder": encoder.model_dump(mode="json", include={"name", "revision"}),
        "training": training.model_dump(mode="json", include={"batch_size", "precision", "optimizer"}),
        "length": min(length, encoder.max_length),
        "kernels": [execution.deterministic, execution.tf32],
    }
    devices = visible_devices(execution.device)[:1]  # ``auto`` is another one where a GPU is hidden
    machine = [platform.node(), cores(), devices, execution.threads, version("torch")]
    key = sha256_json([request, resolve_model(encoder, project.root).content_sha256, machine, _TOKENS])[:16]
    times: dict[str, float] = {}
    with suppress(StoreError):  # nothing was measured so far
        times = read_json(file, dict)
    if key not in times:
        request["root"] = str(project.root.resolve())
        prepared_devices(project)  # the environment of the process that measures
        executor = "serial" if execution.executor == "serial" and devices == ["cpu"] else "processes"
        try:
            [times[key]] = run_all([request], measure, executor=executor, devices=devices, threads=execution.threads)
        except JobsFailed as error:
            message = f"the time of a step could not be measured: {error.failures[0].message}"
            raise RunFailed("not-measured", f"{message}\n    -> correct what it names, or go on without") from error
        with suppress(StoreError, OSError):  # it is measured again
            write_json(file, times)
    return times[key]


def cache_folder() -> Path:
    """Return the folder of this host's caches: ``$REGFT_CACHE``, else ``regft`` below the user's cache folder."""
    if folder := os.environ.get("REGFT_CACHE"):
        return Path(folder).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "regft"


def measure(request: Mapping[str, Any], *, device: str) -> float:
    """Time a training step of the encoder on random rows; return seconds per token, on a CPU without other load."""
    import torch

    from regft_core.models.heads import autocast
    from regft_core.models.load import load_classifier
    from regft_core.models.sites import classify
    from regft_core.runs.training_run import make_deterministic
    from regft_core.training.optim import parameter_groups

    make_deterministic(device, *request["kernels"])
    encoder = EncoderConfig.model_validate(request["encoder"])
    training = TrainingConfig.model_validate(request["training"])
    model = load_classifier(
        resolve_model(encoder, Path(request["root"])),
        kind="classification",
        labels=("a", "b"),
        dropout=training.dropout,
        head_seed=0,
        pooling="mean",
    ).to(device)
    model.train()
    groups = parameter_groups(dict(model.named_parameters()), training, lambda _: False)
    optimizer = OPTIMISERS.load(training.optimizer).build(groups, training)
    length, vocabulary = request["length"], model.config.vocab_size
    count = training.batch_size if device != "cpu" else max(1, min(training.batch_size, _TOKENS // length))
    ids = torch.randint(vocabulary // 2, vocabulary, (count, length), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids.to(device), "attention_mask": torch.ones_like(ids).to(device)}
    labels = torch.zeros(count, dtype=torch.int64, device=device)

    def clock() -> float:
        if device == "cpu":
            return time.process_time() / torch.get_num_threads()
        torch.accelerator.synchronize()
        return time.perf_counter()

    taken = []
    for _ in range(4):  # the first takes longer: memory, choice of kernels; the least is free of what else happens
        began = clock()
        with autocast(torch.device(device), training.precision):
            logits = classify(model, batch, padded=False)[0]
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        taken.append(clock() - began)
    return min(taken[1:]) / (count * length)


def unprepared(task: str, encoder: EncoderConfig) -> dict[str, SetSize]:
    return {"train": SetSize(0, encoder.max_length * encoder.windows)}


def set_sizes(project: Project, task: str, encoder: EncoderConfig) -> dict[str, SetSize]:
    """Return the size of every set of a task; ``unprepared`` where its rows are."""
    lengths = known_lengths(project, task)
    if lengths is None:
        return unprepared(task, encoder)
    described = read_json(project.root / "work" / "datasets" / task / "task.json")
    rows = {name: one["n"] for name, one in of_seed(described, project.params.grid.seeds[0])["sets"].items()}
    most, sizes = encoder.max_length * encoder.windows, {}
    texts = 2 if lengths["apart"] and lengths["pairs"] else 1  # each of them as long as the longer one
    for name, measured in lengths["sets"].items():
        median, p95 = (texts * min(most, measured[part]) for part in ("median", "p95"))
        # The mean of a curve through half the median, the median and the 95th percentile, roughly.
        sizes[name] = SetSize(rows.get(name, 0), 0.6 * median + 0.3 * p95)
    return sizes


def _places(execution: ExecutionConfig) -> tuple[list[str], bool, int]:
    """Return the devices, whether they may be other machines', and how many runs there are at a time."""
    options = execution.settings()
    if is_remote(execution.executor) and options.get("address", "") is not None:
        return [execution.device], True, options.get("at_once", execution.workers)
    devices = visible_devices(execution.device)
    parallel = 1 if execution.executor == "serial" else execution.workers * len(devices)
    return devices, False, min(parallel, max(1, cores() // execution.threads)) if devices == ["cpu"] else parallel

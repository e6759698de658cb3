"""Export one fine-tuned run as a Hugging Face directory, or what it kept; its predictions for a benchmark's server."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.data.batches import collate, padding_of
from regft_core.data.examples import Example
from regft_core.data.prepare import declaration_of
from regft_core.data.read_split import read_split
from regft_core.disk.files import atomic_directory, write_text
from regft_core.disk.tensors import write_tensors
from regft_core.errors import ConfigError, DataError, ExportMismatch, ModelError, Problem, RunFailed
from regft_core.hooks.compose import Entry, answers_for_model, in_the_way_of_export
from regft_core.hooks.declare import behind
from regft_core.kinds import find
from regft_core.kinds._decision import decided
from regft_core.models.export_record import AnsweredBy, Refit, Served, ServedPrompt, refuse_foreign, write_served
from regft_core.models.onnx import require_onnx
from regft_core.models.write_model import export_model
from regft_core.runs.context import Context, Job
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.outputs import changed_settings, take_shared
from regft_core.runs.records import RunRecord
from regft_core.runs.run import look_up
from regft_core.runs.work import Work
from regft_core.schema.sources import FilesSource
from regft_core.schema.tasks import SubmissionConfig
from regft_core.serve.card import model_card, reported
from regft_core.serve.model import ENCODER, KEPT, load_served
from regft_core.serve.out_of_fold import OutOfFold, abstain_for
from regft_core.settings.yaml_paths import task_file

#: Examples whose logits the written model must reproduce.
CHECKED_EXAMPLES = 8
#: Largest difference of answers through a loaded encoder, which may run on another device, from those of the run.
NEAR = 1e-4


def export(job: Job, out: Path | None = None, accuracy: float | None = None, onnx: bool = False) -> Path:
    """Write the run's model to ``out`` (default ``exports/<method>-<task>-<size>[-refit]-seed-<seed>``), loaded again.

    Args:
        accuracy: below the confidence that guarantees this share of right answers, the model does not answer.
        onnx: write ``model.onnx`` beside the weights (``models/onnx.py``).

    Raises RunFailed, ConfigError, ModelError where ``out`` is something else or no threshold guarantees ``accuracy``,
    ExportMismatch where the written model differs.
    """
    if onnx:
        require_onnx()
    context, record = finished_run(job)
    if keeping := in_the_way_of_export(context.registry, context.last.declared.regularisers):
        message = f"export: '{keeping}' of {job.method} learned tensors that an ordinary model folder cannot hold"
        hint = "name another method; the predictions of this one are in work/evaluate"
        raise ModelError("no-plain-export", f"{message}\n    -> {hint}")
    name = f"{job.method}-{job.task}-{job.size}{'-refit' if job.refit else ''}-seed-{job.seed}"
    target = out if out is not None else context.root / "exports" / name
    judged = None
    if accuracy is not None or (job.refit and Work(context.root).result_file("evaluate", job.cell).is_file()):
        judged = OutOfFold(context.root, job.cell, context.params.grid.seeds)
    refit = abstain = None
    data = context.last.rows
    if judged is not None and job.refit:
        refit = judged.expected(data.summary.length, context.params.report.confidence, reported(context))
    temperature = (refit and refit.temperature) or 1.0
    if judged is not None and accuracy is not None:
        abstain = abstain_for(context, accuracy, judged, temperature)
    take_shared(context.root, context.store, record.key)
    trained, answering = FinishedModel(context), answers_for_model(context.last.entries)
    served = _served(context, record.key, trained, answering, refit).model_copy(update={"abstain": abstain})
    by = f"by '{answering.name}' in place of a model" if answering is not None else ""
    if onnx and (how := by or ("at a mask" if served.prompt else "from windows" if served.windows > 1 else "")):
        message = f"export --onnx: {job.method} answers {how}: no graph of it"
        raise ModelError("no-onnx", f"{message}\n    -> leave --onnx out")
    card = model_card(context, record, served, judged if job.refit else None)
    examples = data.examples[:CHECKED_EXAMPLES]

    def write_model(model: Any, folder: Path, **how: Any) -> Path:
        encoded = trained.encode(examples)
        batch = collate(encoded, range(len(encoded)), padding_of(context.last.tokenizer), context.task["kind"])
        length = context.last.encoder.max_length
        inputs = batch.model_inputs()
        return export_model(model, context.last.tokenizer, folder, check_batch=inputs, max_length=length, **how)

    if answering is not None:
        name, reads = answering.name, answering.declares.reads == "encoder"
        refuse_foreign(target, KEPT)
        with atomic_directory(target) as temporary:
            write_tensors(temporary / KEPT, behind(f"{name}.", trained.kept))
            write_served(temporary, served)
            (temporary / "README.md").write_text(card, encoding="utf-8")
            if reads:
                note = f"The encoder that `{name}` reads, with a head that was never trained; see the folder above.\n"
                write_model(trained.trainee.model, temporary / ENCODER, card=note)
            logits, near = load_served(temporary, "cpu").logits(examples), NEAR if reads else 0.0
            if not np.allclose(logits, trained.answer(examples), rtol=0.0, atol=near):
                message = f"export to {target}: what was written answers differently; nothing was written"
                hint = "report it: the method's fitted tensors do not survive being written"
                raise ExportMismatch("export-differs", f"{message}\n    -> {hint}")
        return target
    if served.prompt is None:  # the temperature goes into the head
        served = served.model_copy(update={"temperature": None})
    return write_model(trained.model, target, card=card, served=served, temperature=temperature, onnx=onnx)


def finished_run(job: Job) -> tuple[Context, RunRecord]:
    """The context of a trained run, with its tuned values and keys, and its record. Raises RunFailed, DataError."""
    context = Context(job)  # says what is not in the grid
    if job.refit:  # it is in the run store alone
        stored = look_up(job, context.project, "finetune")
        record = None if stored is None else RunRecord.model_validate(stored)
    else:
        runs = Work(Path(job.root)).finetune(job.cell).runs
        record = next((run for run in runs if run.seed == job.seed), None)
        if changed := changed_settings(context):  # its weights would be read, and the card told, by those of now
            what = f"{job.cell.directory} was trained with other settings ({'; '.join(changed[:3])})"
            raise DataError("outdated-run", f"{what}\n    -> run `dvc repro`, then this again, or take the edit back")
    if record is None or not record.ok:
        command = "regft export --refit" if job.refit else "dvc repro"
        why = record.error if record is not None else f"it was not trained yet; run `{command}` first"
        raise RunFailed("no-model", f"seed {job.seed} of {job.method} on {job.task}-{job.size} has no model: {why}")
    values = record.tuned.values if record.tuned else job.values
    context = Context(replace(job, values=values), project=context.project)
    context.take(record.keys)
    return context, record


def _served(context: Context, key: str, trained: FinishedModel, answering: Entry | None, refit: Refit | None) -> Served:
    columns, source, encoder = context.task_config.columns, context.task_config.source, context.last.encoder
    temperature = refit and refit.temperature
    decision = trained.decision and trained.decision.at(temperature or 1.0)
    reading: dict[str, Any] = {"max_length": None}
    if answering is None or answering.declares.reads == "encoder":
        reading = {"max_length": encoder.max_length, "rows_per_example": context.last.rows_per_example}
        reading |= {"instruction": encoder.prompt or "", "windows": encoder.windows, "stride": encoder.stride}
    prompt = None
    if answering is None and (asked := context.last.prompt) is not None:
        words = tuple(context.last.tokenizer.convert_ids_to_tokens(trained.model.label_words.tolist()))
        prompt = ServedPrompt(template=asked.template, tokens=words, demonstrations=trained.demonstration_sets)
    by = answering and AnsweredBy(regulariser=answering.name, options=answering.options.model_dump(mode="json"))
    return Served(
        text=columns.text,
        text_pair=columns.text_pair,
        kind=context.task["kind"],
        labels=context.task["labels"],
        offsets=decision.offsets if decision else (),
        at_least_one=bool(decision and decision.at_least_one),
        task=context.job.task,
        run_key=key,
        answered_by=by,
        temperature=temperature,
        refit=refit,
        label_delimiter=columns.label_delimiter or ";",
        # What was said of the training file, but for its numbers.
        file_format=source.model_dump(exclude={"kind", "decimal"}) if isinstance(source, FilesSource) else {},
        prompt=prompt,
        **reading,
    )


def write_submission(job: Job, out: Path | None = None) -> list[tuple[Path, int]]:
    """Predict every split of the task's ``submission`` with one finished run; returns (file, rows) of each."""
    context, _ = finished_run(job)
    wanted = context.task_config.submission
    if wanted is None:
        hint = "add for instance submission: {format: glue, files: {SST-2.tsv: test}}"
        file = task_file(job.task)
        raise ConfigError([Problem("no-submission", file, 0, "submission", "the task declares no submission", hint)])
    name = f"{job.method}-{job.task}-{job.size}-seed-{job.seed}"
    folder = out if out is not None else context.root / "submissions" / name
    model, task = FinishedModel(context), context.task_config
    declaration = replace(declaration_of(task), labelled=False)
    written = []
    for file, split in wanted.files.items():
        examples = read_split(context.root, job.task, task.source, split, declaration).examples
        logits = decided(model.decision, model.answer(examples))
        lines = submission_lines(wanted, examples, logits, context.task)
        write_text(folder / file, "".join(f"{line}\n" for line in lines))
        written.append((folder / file, len(examples)))
    return written


def submission_lines(
    wanted: SubmissionConfig, examples: Sequence[Example], logits: npt.NDArray[Any], task: dict[str, Any]
) -> list[str]:
    """The lines of one file, from logits ``[n, K]`` by which the model decides, in the order of the examples.

    GLUE: a header, then position and label's name (or value, to three digits). CLUE: JSON objects of ``id`` and
    ``label``.
    """
    kind, names = find(task["kind"]), task["labels"] or ()
    low, high = task.get("range") or (-math.inf, math.inf)
    shown = (kind.shown(value, names) for value in kind.predictions(logits, np.arange(len(names))))
    answers = [f"{min(max(a, low), high):.3f}" if isinstance(a, float) else wanted.labels.get(a, a) for a in shown]
    if wanted.format == "glue":
        return ["index\tprediction", *(f"{number}\t{answer}" for number, answer in enumerate(answers))]
    # An identifier is a number where it is one, as in the benchmark's own files.
    ids = (int(row.idx) if row.idx.isdecimal() else row.idx for row in examples)
    rows = ({"id": idx, "label": answer} for idx, answer in zip(ids, answers, strict=True))
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def check_repository(repository: str) -> None:
    """Raise ModelError for what is not ``OWNER/NAME``, before anything is trained or exported."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        hint = "for instance --push me/reviews"
        raise ModelError("bad-repository", f"--push {repository}: is not OWNER/NAME\n    -> {hint}")


def push(folder: Path, repository: str) -> str:
    """Upload an export, where needed to a new private repository; return its address. Raises ModelError."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        if not api.repo_exists(repository):
            api.create_repo(repository, private=True)
        message = f"Export {folder.name} of regft"
        return str(api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message).commit_url)
    except Exception as error:  # the library's own, and those of what it reads the network with
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = f"log in with `hf auth login`, check OWNER/NAME, then: hf upload {repository} {folder}"
        raise ModelError("push-refused", f"--push {repository}: {reason}\n    -> {hint}") from error

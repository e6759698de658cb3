"""Token lengths of a task's sets under the project's encoder: ``work/lengths/<task>.json``. No torch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from regft_core.data import lengths
from regft_core.data.examples import read_jsonl
from regft_core.data.prompts import Reading
from regft_core.disk.reading import read_json
from regft_core.errors import ModelError, StoreError
from regft_core.models.source import ModelSource, encoder_present, longest_input, resolve_model
from regft_core.runs.code import code_of
from regft_core.runs.keys import scope_of
from regft_core.runs.work import Work, described_task
from regft_core.settings.project import Project


def lengths_inputs(project: Project, task: str) -> dict[str, Any]:
    """Return what decides the token lengths of a prepared task: encoder and reading, the rows and the code."""
    model = project.model(task)
    source = resolve_model(model, project.root)
    # Where methods read pairs in different ways, lengths are those of a pair in one input, the longer ones.
    pairs = {project.method(name, task).encoder(model).pairs for name in project.methods}
    return {
        "apart": pairs == {"separately"},
        "encoder": source.name,
        "tokenizer": source.tokenizer_sha256,
        "max_length": model.max_length,
        **asdict(Reading.of(model) or Reading()),
        "limit": longest_input(source, model),
        "content": described_task(project.root, task)["content"],
        "code": code_of(scope_of("lengths")).sha256,
    }


def measure_task(project: Project, task: str) -> dict[str, Any]:
    """Tokenise every set of a prepared task once. Raises ModelError where the tokenizer cannot be read."""
    inputs = lengths_inputs(project, task)
    model = project.model(task)
    tokenizer, reading = fast_tokenizer(resolve_model(model, project.root)), Reading.of(model)
    folder = project.root / "work" / "datasets" / task
    described = read_json(folder / "task.json")
    folded = "folds" in described.get("drawn", {})  # the training rows are those of evaluation
    files = {"train": "train.jsonl", "dev": "train.jsonl" if folded else "dev.jsonl"}
    files |= {name: f"ood/{name}.jsonl" for name in described["sets"] if name != "dev"}
    rows = {name: read_jsonl(folder / file) for name, file in files.items()}
    how = {"reading": reading, "apart": inputs["apart"]}
    sets = {name: lengths.measure(of, tokenizer, inputs["max_length"], **how) for name, of in rows.items()}
    return inputs | {"pairs": any(row.text_pair is not None for row in rows["train"][:1]), "sets": sets}


def up_to_date_lengths(project: Project, task: str) -> dict[str, Any] | None:
    """The lengths of a prepared task as its file has them, if that is of this encoder, these rows and this code."""
    inputs = lengths_inputs(project, task)
    with suppress(StoreError):  # not counted yet
        written: dict[str, Any] = read_json(Work(project.root).lengths_file(task))
        if inputs.items() <= written.items():
            return written
    return None


def known_lengths(project: Project, task: str) -> dict[str, Any] | None:
    """The lengths of a task, measured now where its file is not up to date; None without rows or encoder."""
    if not (Work(project.root).task_file(task).is_file() and encoder_present(project.model(task), project.root)):
        return None
    return up_to_date_lengths(project, task) or measure_task(project, task)


def fast_tokenizer(source: ModelSource) -> Any:
    """Return the encoder's ``tokenizers.Tokenizer``, built by transformers without ``tokenizer.json``; ModelError."""
    path = source.opened() / "tokenizer.json"
    if not path.is_file():
        from regft_core.models.load import load_tokenizer

        return load_tokenizer(source).backend_tokenizer
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        what = f"model '{source.name}': {path} cannot be read as a tokenizer: {error}"
        hint = "save it again with the installed transformers: tokenizer.save_pretrained(directory)"
        raise ModelError("cannot-load", f"{what}\n    -> {hint}") from error

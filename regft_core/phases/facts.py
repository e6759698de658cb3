"""Facts: everything that determines a stage and that DVC does not see, as small resolved files.

DVC follows neither imports nor defaults, knows nothing of an encoder's bytes or of package
versions, and takes a whole YAML file or named keys of it. The stage ``facts`` runs in every
``dvc repro`` and writes what is the case; the other stages depend on these files. A stage computes
its own fact again before it starts and before it commits: an edit in between is refused.

Facts are byte-stable: sorted keys, no time, no absolute path. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.config.contamination import read_contamination, to_json
from regft_core.config.files import method_file
from regft_core.config.method import Method, Phase
from regft_core.config.plan import same_batches
from regft_core.config.project import Project
from regft_core.config.published import read_published
from regft_core.config.schema.encoder import EncoderConfig
from regft_core.config.schema.tasks import FilesSource, TaskConfig
from regft_core.config.schema.training import TrainingConfig
from regft_core.errors import FactsChanged, StoreError
from regft_core.hooks import compose
from regft_core.hooks.registry import discover
from regft_core.io import canonical_json, read_json, remove, sha256_file, write_json
from regft_core.phases.code import evaluation_scope, merge_scope, phase_scope, report_scope, scope_sha256
from regft_core.phases.switched_on import evaluations_fact, switched_on
from regft_core.runs.fingerprint import code_of, stage_code

if TYPE_CHECKING:
    from regft_core.models.source import ModelSource

FOLDER = Path("work") / "facts"
#: What makes the number of steps of plain fine-tuning.
_STEPS = {"epochs", "max_steps", "batch_size", "accumulation"}


def phase_fact(
    encoder: EncoderConfig,
    phase: Phase,
    entries: Sequence[compose.Entry],
    source: ModelSource,
    metrics: Iterable[str] = (),
) -> dict[str, Any]:
    """What determines a phase besides its rows, its seed and the phases before it.

    ``phase`` has its settled protocol, ``encoder`` what the method overrides. Regularisers of
    strength 0 do nothing, so they and their code are left out. ``metrics`` may choose its epoch.
    """
    acting = compose.active(entries)
    scope = phase_scope(acting, phase, source, metrics)
    code = code_of(scope.entries, exempt=scope.exempt)
    return {
        "phase": phase.name,
        "data": phase.data.model_dump(mode="json", exclude={"task", "size"}),
        "regularisers": {cls.name: options.model_dump(mode="json") for cls, options in acting},
        "training": phase.training.settled(),
        "model": {
            "content": source.content_sha256,
            "tokenizer": source.tokenizer_sha256,
            "max_length": encoder.max_length,
            "pooling": encoder.pooling,
            "pairs": encoder.pairs,
        },
        "code": code["sha256"],
        "packages": code["packages"],
    }


def settled_training(phase: Phase, entries: Sequence[compose.Entry], shared: TrainingConfig) -> TrainingConfig:
    """The protocol that a phase really runs under, from the one that all methods share on its rows."""
    return compose.resolve_training(entries, phase, shared)[0]


def method_phases(
    project: Project,
    method: Method,
    phases: Sequence[Phase],
    source: ModelSource,
    task: str | None = None,
    start: TrainingConfig | None = None,
) -> list[Any]:
    """The given phases of a method, resolved, in their order: under the shared protocol, or as they are on ``task``.

    ``start`` is the protocol that they begin with where tuned values have changed it.
    """
    registry = discover()
    own = start or (project.params.training if task is None else project.shared(task))
    encoder = method.encoder(project.params.model if task is None else project.model(task))
    primary = {project.tasks[name].primary for name in ([task] if task is not None else project.params.grid.tasks)}
    found = []
    for phase in phases:
        entries = compose.entries(registry, phase.regularisers)
        shared = own if phase.data.task is None else project.shared(phase.data.task)
        settled = replace(phase, training=settled_training(phase, entries, shared))
        fact = phase_fact(encoder, settled, entries, source, sorted(primary))
        fact |= {"start": phase.start, "seed": phase.seed, "rows": phase.data.model_dump(mode="json")}
        if phase.repeat is not None:
            tasks = [phase.data.task] if phase.data.task is not None else project.params.grid.tasks
            primary = {project.tasks[task].primary for task in tasks}
            fact["repeat"] = phase.repeat.settled()
            fact["merge_code"] = scope_sha256(merge_scope(phase.repeat.merge, primary, source))
        if settled.training.checkpoint == "best_on_dev_as_published" or settled.training.epoch_scores:
            fact["dev"] = _dev_facts(project, task)
        if phase.data.task is not None:
            fact["other_task"] = training_set_fact(project, phase.data.task)
        found.append(fact)
    return found


def _dev_facts(project: Project, task: str | None) -> dict[str, Any]:
    """What the development sets depend on that training reads: of ``task``, or of all tasks of the grid."""
    names = [task] if task is not None else project.params.grid.tasks
    return {name: training_set_fact(project, name) for name in names}


def _grid(project: Project) -> dict[str, Any]:
    """Sizes and seeds, which a stage reads although its inputs have them: an edit while it runs is seen."""
    return {"sizes": list(project.params.grid.sizes), "seeds": list(project.params.grid.seeds)}


def search_fact(project: Project, method: Method, source: ModelSource) -> dict[str, Any]:
    """What the stage ``search`` of a method depends on; next to nothing where it has nothing to do."""
    tuning = tuning_fact(project, method, source)
    if not method.earlier and not tuning:
        return {"phases": []}
    return {"phases": method_phases(project, method, method.earlier, source), **_grid(project), **tuning}


def tuning_fact(project: Project, method: Method, source: ModelSource) -> dict[str, Any]:
    """The trials of a method, resolved, with what judges and chooses; empty where nothing is tuned."""
    tuning, trials = project.params.tuning, project.trials(method.name)
    if tuning is None or not trials:
        return {}
    resolved = []
    for values in trials:
        own, start = project.tuned(method.name, None, values)
        resolved.append({"values": values, "phases": method_phases(project, own, own.phases, source, start=start)})
    primary = {project.tasks[task].primary for task in project.params.grid.tasks}
    judge: dict[str, Any] = {"selection": tuning.selection, "by_seed": tuning.judged_by_seed}
    if tuning.selection == "split":
        judge["split"] = tuning.split
    else:
        judge["dev"] = _dev_facts(project, None)
    code = scope_sha256(evaluation_scope(primary, source))
    return {"tuning": {"trials": resolved, **judge, "code": code}}


def finetune_fact(project: Project, method: Method, source: ModelSource) -> dict[str, Any]:
    """What the stage ``finetune`` of a method depends on."""
    return {
        "phases": method_phases(project, method, [method.finetune], source),
        **_grid(project),
        "shared_training": _shared_steps(project),
        **_declared_fits(method),
        **_own_batches(project, method),
    }


def _declared_fits(method: Method) -> dict[str, Any]:
    """What the method declares of its fits: in the cost that the stage writes down, and in no code that counts."""
    registry = discover()
    fits = {phase.name: phase.fit_ratio(registry) for phase in method.phases}
    return {"fits": fits} if any(fits.values()) else {}


def _own_batches(project: Project, method: Method) -> dict[str, Any]:
    """How the steps of phases with batches of another size count in the cost that the stage writes down."""
    own = [phase for phase in method.phases if not same_batches(phase.training, project.params.training)]
    return {"steps_counted_by": "rows"} if any(phase.training.epochs for phase in own) else {}


def settings_fact(project: Project, name: str, task: str, source: ModelSource) -> dict[str, Any]:
    """What is other for a method on a task than its own facts say; empty where nothing is."""
    base, own = project.methods[name], project.method(name, task)
    if own == base and project.shared(task) == project.params.training and project.model(task) == project.params.model:
        return {}
    here = method_phases(project, own, own.phases, source, task)
    steps = project.shared(task).model_dump(mode="json", include=_STEPS)
    if here == method_phases(project, base, base.phases, source) and steps == _shared_steps(project):
        return {}
    return {"phases": here, "shared_training": steps}


def _shared_steps(project: Project) -> dict[str, Any]:
    """Costs are told relative to the steps of the shared protocol."""
    return project.params.training.model_dump(mode="json", include=_STEPS)


def task_fact(project: Project, task: str) -> dict[str, Any]:
    """A task's definition, the sets that judge it, the content of its files, and the code that reads them."""
    config = project.tasks[task]
    judges = {name: _definition(project.tasks[name]) for name in config.ood if name in project.tasks}
    return {
        "task": _definition(config),
        "judges": judges,
        "files": {file: _file_hash(project.root, file) for file in sorted(task_files(project, task))},
        "code": stage_code("dataset")["sha256"],
    }


def task_files(project: Project, task: str) -> set[str]:
    """The files below ``data/``, as the task names them, that its rows and those of its sets come from."""
    config = project.tasks[task]
    files = {split for split in (config.splits.train, config.splits.dev) if isinstance(config.source, FilesSource)}
    for name, ood in config.ood.items():
        other = project.tasks.get(name)
        source = ood.source or (other.source if other is not None else None)
        split = ood.split or (other.splits.dev if other is not None else None)
        if isinstance(source, FilesSource):
            files.add(split)
    return {file for file in files if file is not None}


def training_set_fact(project: Project, task: str) -> dict[str, Any]:
    """What the training rows of a task depend on, for a phase that trains on them; see :func:`training_set`."""
    return task_fact(replace(project, tasks={task: training_set(project.tasks[task])}), task)


def training_set(task: TaskConfig) -> TaskConfig:
    """A task without what judges it, which a phase that trains on its rows does not need."""
    return task.model_copy(update={"ood": {}})


def _definition(task: TaskConfig) -> dict[str, Any]:
    # How the task is trained on is in the facts of the methods that train on it; submissions are no stage.
    return task.model_dump(mode="json", exclude={"description", "training", "model", "submission"})


def _file_hash(root: Path, split: str) -> str | None:
    relative = Path(split)
    path = root / (relative if relative.parts[:1] == ("data",) else Path("data") / relative)
    return sha256_file(path) if path.is_file() else None


def subsample_fact(project: Project) -> dict[str, Any]:
    """What the stage ``subsample`` depends on besides the dataset."""
    stratified = project.params.subsample.stratified
    return {"code": stage_code("subsample")["sha256"], "stratified": stratified, **_grid(project)}


def lengths_fact(project: Project) -> dict[str, Any]:
    """What decides the token lengths of texts: the encoder's tokenizer, ``max_length`` and the code."""
    from regft_core.phases.lengths import settings

    tasks = project.params.grid.tasks
    own = {task: project.model(task).max_length for task in tasks if project.model(task) != project.params.model}
    fact = {"code": stage_code("lengths")["sha256"], "settings": settings(project)}
    return fact | {"max_length": own} if own else fact


def of_cell(name: str, task: str) -> Callable[[Project], dict[str, Any]]:
    """The settings fact of the method ``name`` on a task, as a function of the project."""

    def found(project: Project) -> dict[str, Any]:
        from regft_core.models.source import resolve_model

        return settings_fact(project, name, task, resolve_model(project.params.model, project.root))

    return found


def of_method(
    fact: Callable[[Project, Method, ModelSource], dict[str, Any]], name: str
) -> Callable[[Project], dict[str, Any]]:
    """The search or finetune fact of the method ``name``, as a function of the project."""

    def found(project: Project) -> dict[str, Any]:
        from regft_core.models.source import resolve_model

        return fact(project, project.methods[name], resolve_model(project.params.model, project.root))

    return found


def evaluate_fact(project: Project) -> dict[str, Any]:
    """The code that evaluates, with the metrics of all tasks of the grid, and the evaluations beyond them."""
    from regft_core.models.source import resolve_model

    source = resolve_model(project.params.model, project.root)
    code = scope_sha256(evaluation_scope(_metrics(project), source))
    return {"code": code, "evaluations": _evaluations(project, source)}


def _evaluations(project: Project, source: ModelSource) -> dict[str, Any]:
    """The evaluations that are switched on, with the rows of other tasks that they read."""
    primary = {project.tasks[task].primary for task in project.params.grid.tasks}
    found = evaluations_fact(project.params, source, sorted(primary))
    for name, (evaluation, options) in switched_on(project.params).items():
        if tasks := evaluation.other_tasks(options):
            found[name]["tasks"] = {task: training_set_fact(project, task) for task in tasks}
    return found


def _metrics(project: Project) -> set[str]:
    return {metric for task in project.params.grid.tasks for metric in project.tasks[task].metrics}


def report_fact(project: Project) -> dict[str, Any]:
    """The report's code, what the methods' files say about themselves, the evaluations and papers that it shows."""
    from regft_core.models.source import resolve_model

    words = {"description", "paper", "control_for", "differs_by", "variant_of", "combines"}
    return {
        "code": scope_sha256(report_scope(_metrics(project))),
        "methods": {name: m.config.model_dump(mode="json", include=words) for name, m in project.methods.items()},
        "evaluations": _evaluations(project, resolve_model(project.params.model, project.root)),
        "contamination": to_json(read_contamination(project.root)),
        "published": {
            name: read_published(project.root, name).config.model_dump(mode="json")
            for name in project.params.report.published
        },
    }


def all_facts(project: Project) -> dict[str, Any]:
    """Every fact of a project by file name."""
    from regft_core.models.source import resolve_model

    source = resolve_model(project.params.model, project.root)
    facts: dict[str, Any] = {
        "subsample": subsample_fact(project),
        "lengths": lengths_fact(project),
        "evaluate": evaluate_fact(project),
        "report": report_fact(project),
        # As they are, so that `dvc params diff` shows their values.
        "methods": {name: project.documents[method_file(name)].data for name in project.methods},
    }
    for name, method in project.methods.items():
        facts[f"search-{name}"] = search_fact(project, method, source)
        facts[f"finetune-{name}"] = finetune_fact(project, method, source)
        for task in project.params.grid.tasks:
            facts[f"settings-{name}-{task}"] = settings_fact(project, name, task, source)
    for task in project.params.grid.tasks:
        facts[f"task-{task}"] = task_fact(project, task)
    return facts


def write_facts(project: Project) -> list[str]:
    """Write ``work/facts``; returns the names of the files that changed.

    Files with the same content are not touched, files of methods and tasks that are gone are removed.
    """
    folder = project.root / FOLDER
    facts = all_facts(project)
    changed = []
    for name, value in facts.items():
        path = folder / f"{name}.json"
        if not _says(path, value):
            write_json(path, value)
            changed.append(name)
    for path in sorted(folder.glob("*.json")):
        if path.stem not in facts:
            remove(path)
            changed.append(path.stem)
    return changed


def _says(path: Path, value: Any) -> bool:
    """Whether a fact's file has this content; compared as text, for 1 and 1.0 are equal values and different bytes."""
    try:
        return path.is_file() and canonical_json(read_json(path)) == canonical_json(value)
    except StoreError:
        return False  # damaged: written again


def check_fact(root: Path, name: str, value: Mapping[str, Any], when: str) -> None:
    """Refuse to go on when the case is no longer what the stage ``facts`` has written.

    Raises ``FactsChanged``: nothing is committed; the next ``dvc repro`` sees the new facts.
    """
    path = root / FOLDER / f"{name}.json"
    if not path.is_file():
        raise FactsChanged(
            "facts-missing", f"{FOLDER / name}.json is missing; run `dvc repro`, whose stage facts writes it"
        )
    written = read_json(path)
    if canonical_json(written) != canonical_json(value):
        what = ", ".join(_differences(written, value)) or "its content"
        raise FactsChanged(
            "out-of-date",
            f"{what} changed {when}: {FOLDER / name}.json says otherwise. Nothing was written; "
            "run `dvc repro` again (stage facts takes note of the change)",
        )


def _differences(one: Any, other: Any, path: str = "") -> list[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = sorted({*one, *other})
        return [d for k in keys for d in _differences(one.get(k), other.get(k), f"{path}.{k}" if path else str(k))]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for i, (a, b) in enumerate(zip(one, other)) for d in _differences(a, b, f"{path}[{i}]")]
    return [] if canonical_json(one) == canonical_json(other) else [path or "all"]

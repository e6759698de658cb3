"""Checks on out-of-distribution sets: labels are compared by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regft_core.errors import Problem
from regft_core.kinds import find
from regft_core.names import listing, suggestion
from regft_core.schema.tasks import OodConfig, TaskConfig
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.files import task_file

#: Keys that describe an in-place set; a set with a file of its own says them there.
_IN_PLACE = ("columns", "labels", "label_values", "drop_labels", "drop_empty")


def check_ood(ood: str, task: TaskConfig, tasks: Mapping[str, TaskConfig], document: Document) -> list[Problem]:
    """Return problems of one out-of-distribution set of ``task``; ``tasks`` are those that are right."""
    config, path, other = task.ood[ood], ("ood", ood), tasks.get(ood)
    problems: list[Problem] = []
    source = config.source or (other.source if other is not None else None)
    if config.if_present and source is not None and source.kind != "files":
        message = f"'if_present' is for sets in files, and this one is read from a {source.kind} source"
        problems.append(document.problem("needs-files", (*path, "if_present"), message, "remove it"))
    if config.source is not None:
        if config.split is None:
            hint = "an in-place set names its split or file"
            problems.append(document.problem("split-missing", path, "'split' is missing", hint))
        labels = config.labels if config.labels is not None else task.labels
        problems += check_label_values(config.label_values, labels, document, path)
        return problems + _check_kind_and_labels(task, config, task.kind, labels, path, document)
    for key in _IN_PLACE:
        if key in config.model_fields_set:
            hint = f"write it in {task_file(ood)}, or give 'source' here"
            message = f"'{key}' is for sets with a 'source' in place"
            problems.append(document.problem("in-place-only", (*path, key), message, hint))
    if other is not None:
        problems += _check_kind_and_labels(task, config, other.kind, other.labels, path, document)
    return problems


def check_label_values(
    values: Mapping[str, str] | None, labels: Sequence[str] | None, document: Document, path: KeyPath
) -> list[Problem]:
    """Names in the ``label_values`` below ``path`` that are not among ``labels``."""
    allowed, problems = labels or (), []
    for value, label in (values or {}).items():
        if label not in allowed:
            hint = suggestion(label, allowed, "labels")
            problems.append(
                document.problem(
                    "unknown-label", (*path, "label_values", value), f"'{label}' is not one of labels", hint
                )
            )
    return problems


def _check_kind_and_labels(
    task: TaskConfig,
    config: OodConfig,
    kind: str,
    theirs: tuple[str, ...] | None,
    path: KeyPath,
    document: Document,
) -> list[Problem]:
    if kind != task.kind:
        message = f"a {task.kind} task cannot be judged on a {kind} set"
        return [document.problem("kind-mismatch", path, message, "name a set of the same kind")]
    at_map = (*path, "label_map")
    if not find(kind).has_labels:
        problems = []
        for key in ("label_map", "labels", "label_values"):
            if getattr(config, key) is not None:
                message = f"'{key}' is for classification"
                problems.append(
                    document.problem(
                        "classification-only", (*path, key), message, "remove it; targets are compared as they are"
                    )
                )
        return problems
    own, theirs = task.labels or (), theirs or ()
    if config.label_map is None:
        if set(own) == set(theirs):
            return []
        only_own = listing(label for label in own if label not in theirs)
        only_theirs = listing(label for label in theirs if label not in own)
        message = f"label names differ (only this task: {only_own}; only the set: {only_theirs})"
        hint = f"add label_map: {{this task's label: the set's label}} from each of {listing(own)} to {listing(theirs)}"
        return [document.problem("labels-differ", path, message, hint)]
    problems = []
    for label, target in config.label_map.items():
        if label not in own:
            hint = suggestion(label, own, "this task's labels")
            problems.append(
                document.problem("unknown-label", (*at_map, label), f"'{label}' is not a label of this task", hint)
            )
        if target not in theirs:
            hint = suggestion(target, theirs, "the set's labels")
            problems.append(
                document.problem("unknown-label", (*at_map, label), f"'{target}' is not a label of the set", hint)
            )
    if missing := [label for label in own if label not in config.label_map]:
        hint = f"map it to one of {listing(theirs)}"
        problems.append(document.problem("label-unmapped", at_map, f"no entry for {listing(missing)}", hint))
    if unreached := [label for label in theirs if label not in config.label_map.values()]:
        message = f"nothing becomes the set's {listing(unreached)}, so its rows could never be right"
        hint = "map a label to it, or list it under drop_labels where the set is defined"
        problems.append(document.problem("label-unreached", at_map, message, hint))
    return problems

"""The authors' releases, read at one commit: from a folder of clones, or fetched once into a cache.

``REGFT_OFFICIAL`` names a folder with clones, bare or not, each called ``owner+name``, ``owner/name`` or ``name``.
Without it, or where a clone lacks the commit, git fetches that commit into ``~/.cache/regft/official``
(``REGFT_OFFICIAL_CACHE``). Nothing of a release is copied into this project: tests run the definitions that they name
straight from the clone.
"""

from __future__ import annotations

import ast
import math
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

#: Largest difference of any loss or gradient, in float32.
TOLERANCE = 1e-6
#: Seconds that fetching one commit may take.
PATIENCE = 120


@dataclass(frozen=True)
class Release:
    """Files of ``owner/name`` on GitHub as of one commit."""

    repository: str
    revision: str

    def text(self, path: str) -> str:
        """A file of the release; skips the test, with the reason, where the release cannot be had."""
        folder = _git_folder(self)
        if isinstance(folder, str):
            pytest.skip(f"{self.repository} at {self.revision[:7]} cannot be fetched: {folder}")
        return _git(folder, "show", f"{self.revision}:{path}").stdout

    def definitions(self, path: str, names: Iterable[str], given: Mapping[str, Any] | None = None) -> SimpleNamespace:
        """Classes, functions and constants of a file, without the file's imports and without decorators of classes.

        Args:
            names: what to take; taken in the order of the file.
            given: what the file's own imports would give, beyond the usual of torch and typing.
        """
        wanted, taken = set(names), []
        for node in ast.parse(self.text(path)).body:
            named = {node.name} if isinstance(node, ast.ClassDef | ast.FunctionDef) else _assigned(node)
            if not named & wanted:
                continue
            wanted -= named
            for inner in ast.walk(node):
                if isinstance(inner, ast.ClassDef):
                    inner.decorator_list = []
                elif isinstance(inner, ast.FunctionDef):
                    inner.decorator_list = [one for one in inner.decorator_list if _plain(one)]
            taken.append(node)
        assert not wanted, f"{self.repository} {path}: no {sorted(wanted)}"
        namespace: dict[str, Any] = {**usual(), **(given or {}), "__name__": f"{self.repository}:{path}"}
        exec(compile(ast.Module(taken, []), f"{self.repository}/{path}", "exec"), namespace)  # noqa: S102
        return SimpleNamespace(**namespace)

    def statements(self, path: str, function: str, wanted: Callable[[str], bool]) -> CodeType:
        """Statements inside a function, in their order, whose first line is wanted; to be run with variables given."""
        text = self.text(path)
        lines = text.splitlines()
        owner = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == function)
        nodes = (node for node in ast.walk(owner) if isinstance(node, ast.stmt))
        taken: list[ast.stmt] = []
        for node in sorted(nodes, key=lambda node: (node.lineno, -(node.end_lineno or 0))):
            inside = any(node.lineno <= (other.end_lineno or 0) for other in taken)
            if not inside and wanted(lines[node.lineno - 1].strip()):
                taken.append(node)
        return compile(ast.Module(taken, []), f"{self.repository}/{path}", "exec")


def _assigned(node: ast.stmt) -> set[str]:
    if not isinstance(node, ast.Assign):
        return set()
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _plain(decorator: ast.expr) -> bool:
    """Whether a decorator belongs to Python; those of documentation and registries do not matter here."""
    return isinstance(decorator, ast.Name) and decorator.id in {"staticmethod", "classmethod", "property"}


def usual() -> dict[str, Any]:
    """What such files import."""
    import copy
    import typing

    import numpy as np
    from packaging import version
    from torch.autograd.function import InplaceFunction
    from torch.nn.utils import clip_grad_norm_
    from torch.optim import Optimizer
    from transformers import modeling_outputs
    from transformers.activations import ACT2FN

    losses = {name: getattr(nn, name) for name in ("CrossEntropyLoss", "MSELoss", "KLDivLoss", "BCEWithLogitsLoss")}
    types = {name: getattr(typing, name) for name in ("Callable", "Iterable", "Optional", "Tuple", "Union", "List")}
    return {
        **vars(modeling_outputs),
        **losses,
        **types,
        **{"torch": torch, "nn": nn, "F": nn.functional, "Tensor": torch.Tensor, "Parameter": nn.Parameter},
        **{"math": math, "np": np, "copy": copy, "Optimizer": Optimizer, "clip_grad_norm_": clip_grad_norm_},
        **{"InplaceFunction": InplaceFunction, "ACT2FN": ACT2FN, "BertLayerNorm": nn.LayerNorm},
        **{"apply_chunking_to_forward": lambda forward, _size, _dim, *inputs: forward(*inputs)},
        **{"BertPreTrainedModel": Pretrained, "version": version, "OrderedDict": dict},
    }


class Pretrained(nn.Module):
    """What the classes of an old transformers need of its base class."""

    def __init__(self, config: Any, *_: Any, **__: Any) -> None:
        super().__init__()
        self.config = config

    def init_weights(self) -> None:
        pass

    post_init = init_weights

    def get_head_mask(self, head_mask: Any, layers: int, *_: Any) -> list[None]:
        return [None] * layers

    def get_extended_attention_mask(self, mask: torch.Tensor, *_: Any) -> torch.Tensor:
        return (1.0 - mask[:, None, None, :].float()) * -10000.0


def old_config(config: Any, **more: Any) -> SimpleNamespace:
    """A model's configuration with the attributes that older versions of transformers gave it."""
    older = {
        **{"output_attentions": False, "output_hidden_states": False, "use_return_dict": False, "use_cache": False},
        **{"is_decoder": False, "add_cross_attention": False, "chunk_size_feed_forward": 0, "pruned_heads": {}},
        **{"gradient_checkpointing": False, "position_embedding_type": "absolute", "torchscript": False},
        **{"num_labels": config.num_labels},
    }
    return SimpleNamespace(**{**config.to_dict(), **older, **more})


def loaded(theirs: nn.Module, weights: Mapping[str, torch.Tensor]) -> nn.Module:
    """Their model with these weights, in training mode without dropout; all of theirs must be given."""
    missing, _ = theirs.load_state_dict({name: value.detach() for name, value in weights.items()}, strict=False)
    assert not [name for name in missing if "position_ids" not in name], missing
    theirs.train()
    for module in theirs.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return theirs


def apart(theirs: Mapping[str, torch.Tensor | None], ours: Mapping[str, torch.Tensor | None]) -> float:
    """The largest difference of tensors with the same name; each of theirs has to be found in ours, and not be 0."""
    largest, compared = 0.0, 0
    for name, value in theirs.items():
        if value is None:
            continue
        own = ours[name]
        assert own is not None, name
        largest = max(largest, float((value.detach() - own.detach()).abs().max()))
        compared += bool(value.detach().abs().max() > 1e-4)
    assert compared > min(10, len(theirs) // 2)
    return largest


def agree(
    what: str,
    losses: tuple[Tensor | float, float],
    theirs: Mapping[str, Tensor | None],
    ours: Mapping[str, Tensor | None],
    tolerance: float = TOLERANCE,
) -> None:
    """Loss (theirs, ours) and gradients of one step are the same; prints how far apart they are."""
    far = max(abs(float(losses[0]) - losses[1]), apart(theirs, ours))
    print(f"{what}: {far:.1e}")
    assert far < tolerance


def gradients(model: nn.Module) -> dict[str, torch.Tensor | None]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


# ------------------------------------------------------------------------------------------- clones


@cache
def _git_folder(release: Release) -> Path | str:
    """A git directory that has the commit, or why there is none."""
    reason = ""
    if given := os.environ.get("REGFT_OFFICIAL"):
        for folder in _candidates(Path(given), release.repository):
            if _has(folder, release.revision):
                return folder
        reason = f"no clone in {given} has it; "
    cached = Path(os.environ.get("REGFT_OFFICIAL_CACHE") or Path.home() / ".cache" / "regft" / "official")
    folder = cached / release.repository.replace("/", "+")
    if _has(folder, release.revision):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "--quiet", "--bare")
        url = f"https://github.com/{release.repository}"
        _git(folder, "fetch", "--quiet", "--depth", "1", url, release.revision, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return reason + str(said).strip().splitlines()[-1]
    return folder


def _candidates(folder: Path, repository: str) -> Iterable[Path]:
    owner, name = repository.split("/")
    for clone in (folder / f"{owner}+{name}", folder / owner / name, folder / name):
        yield from (clone, clone / ".git", clone / "repo", clone / "repo" / ".git")


def _has(folder: Path, revision: str) -> bool:
    try:
        return folder.is_dir() and _git(folder, "cat-file", "-e", f"{revision}^{{commit}}").returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _git(folder: Path, *arguments: str, timeout: int = 60) -> subprocess.CompletedProcess[str]:
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", f"--git-dir={folder}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout, env=quiet)

"""Methods: their catalogue, the controls of those that a project lists, parts of your own and their tests."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from pydantic_core import to_jsonable_python

from regft_core.contract import Promise
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.fit.new_project import new_method
from regft_core.grid.method_table import as_text, catalogue
from regft_core.names import suggestion
from regft_core.settings.controls import missing, with_controls
from regft_core.settings.preset import preset_file
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import PRESETS, method_file

from .common import PRESET, argument, command, flag


@command(argument("names", "methods to show (default: all)", nargs="*"), flag("--json", "as a JSON list, for scripts"))
def methods(root: Path, arguments: argparse.Namespace) -> None:
    """Print the catalogue of methods.

    Says of each what it is, where it acts, what it costs and what it is compared
    with; of a method that is named also every value with its source.

    examples
      regft methods        all: phases, what they act on, cost, controls
      regft methods NAME   one, with all values and their sources

    next: list it under methods in params.yaml, then `regft controls --write`
    """
    lines = catalogue(root)
    known = [line.name for line in lines]
    if unknown := [name for name in arguments.names if name not in known]:
        hint = suggestion(unknown[0], known, "there are")
        raise ConfigError([Problem("unknown-method", method_file(unknown[0]), 0, "", "there is no such method", hint)])
    lines = [line for line in lines if not arguments.names or line.name in arguments.names]
    if arguments.json:
        print(json.dumps([to_jsonable_python(line) for line in lines], indent=1))
    else:
        print(as_text(lines, values=bool(arguments.names)))


@command(flag("--write", "add them to the params file"), PRESET)
def controls(root: Path, arguments: argparse.Namespace) -> None:
    """List the controls that the listed methods lack, or add them.

    Prints each missing control or replacement with what it differs in. With
    --write they are added to params.yaml.

    examples
      regft controls
      regft controls --write

    next: regft plan
    """
    params_file = "params.yaml" if arguments.preset is None else preset_file(root, arguments.preset)
    controls = open_project(root, params_file).controls
    names = missing(controls)
    if not names:
        pairs = ", ".join(f"{one.control_for} ({one.name})" for one in controls)
        listed = f"every control that is declared for a listed method is listed: {pairs}"
        print(listed if pairs else "no listed method has a declared control")
    elif not arguments.write:
        print("\n".join(str(one) for one in controls if not one.listed))
        preset = f" --preset {arguments.preset}" if arguments.preset else ""
        print(f"Add them under methods, or run `regft controls{preset} --write`.")
    elif Path(params_file).is_absolute():
        hint = f"copy it to {PRESETS}/ under another name, and add them to that preset"
        raise ConfigError([Problem("shipped-preset", params_file, 0, "", "is regft's own, for every project", hint)])
    else:
        path = (root / params_file).resolve()  # a linked file stays a link
        text = with_controls(path, names)
        open_project(root, params_file, text)  # the controls' own files were not checked so far: nothing lists them
        write_text(path, text)
        print(f"added to {params_file}:")
        print("\n".join(f"  {one.name} ({one.kind} for {one.control_for})" for one in controls if not one.listed))


@command(argument("what", "what to write: method", choices=("method",)), argument("name", "its name"))
def new(root: Path, arguments: argparse.Namespace) -> None:
    """Write the files of a method of your own.

    Makes methods/NAME.py, a regulariser that works as it is written; the method
    pipelines/methods/NAME.yaml, which uses it; and tests/test_NAME.py, which tries
    its contract by pytest. Nothing that is there is overwritten.

    examples
      regft new method smooth_logits

    next: regft test-method NAME
    """
    for path in new_method(root, arguments.name):
        print(f"wrote {path}")
    print(f"Change it, try it by `regft test-method {arguments.name}`, and list it in params.yaml.")


def print_promises(promises: Iterable[Promise]) -> None:
    broken = 0
    for promise in promises:
        mark = {True: "kept", False: "BROKEN", None: "not said"}[promise.kept]
        print(f"{mark:9} {promise.says}" + (f": {promise.found}" if promise.found else ""), flush=True)
        broken += promise.kept is False
    if broken:
        sys.exit(1)


@command(argument("name", "name of a regulariser"))
def test_method(root: Path, arguments: argparse.Namespace) -> None:
    """Test one regulariser, your own or a shipped one.

    Trains it for a few steps on generated rows with a tiny encoder, on every kind
    of task that it fits, and prints which promises it keeps. NAME is that of the
    class (`name = "..."`) in methods/NAME.py. Exits with 1 when a promise is
    broken; writes nothing.

    examples
      regft test-method smooth_logits

    next: list the method in params.yaml, then `regft check`
    """
    from regft_core.contract.check_method import check_method

    print_promises(check_method(root, arguments.name))


@command(argument("name", "name of a metric"))
def test_metric(root: Path, arguments: argparse.Namespace) -> None:
    """Test one metric, your own or a shipped one.

    Scores generated labels of every kind of task that the metric fits and prints
    which promises it keeps. NAME is that of the file metrics/NAME.py. Exits with 1
    when a promise is broken; writes nothing.

    examples
      regft test-metric accuracy

    next: list the metric in a task's `metrics`, then `regft check`
    """
    from regft_core.contract.plug_ins import check_metric

    print_promises(check_metric(root, arguments.name))


@command(argument("name", "name of an evaluation"))
def test_evaluation(root: Path, arguments: argparse.Namespace) -> None:
    """Test one evaluation, your own or a shipped one.

    Looks at runs of a tiny encoder on every kind of task that the evaluation fits
    and prints which promises it keeps. NAME is that of the file
    evaluations/NAME.py. Its options are those of `evaluations` in params.yaml, or
    their defaults. Exits with 1 when a promise is broken; writes nothing.

    examples
      regft test-evaluation calibration

    next: list it under `evaluations` in params.yaml, then `regft run`
    """
    from regft_core.contract.plug_ins import check_evaluation

    print_promises(check_evaluation(root, arguments.name))

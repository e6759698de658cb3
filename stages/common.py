"""Arguments of commands with their help, and how a command runs: its errors have no traceback."""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core import output
from regft_core.catalogue import KINDS, use_project
from regft_core.errors import ConfigError, ModelError, Problem, RegftError
from regft_core.grid.worker_processes import die_with_parent
from regft_core.runs.opened_project import open_project
from regft_core.schema.sources import FileFormat
from regft_core.settings.document import Document
from regft_core.settings.preset import lay_out, preset_document, preset_file
from regft_core.settings.project import Project
from regft_core.settings.validate import validate

if TYPE_CHECKING:
    from regft_core.contract import Promise
    from regft_core.fit.own_rows import Asked
    from regft_core.serve.model import ServedModel

#: A line of text that is longer is broken between its words.
COLUMNS = 80
#: Name and options of an argument, as ``argparse`` takes them.
Argument = tuple[str, dict[str, Any]]


def argument(name: str, help: str, **options: Any) -> Argument:
    """Return an argument, as of ``ArgumentParser.add_argument``; its default is shown with its help."""
    if options.get("default"):
        help = f"{help} (default: {options['default']})"
    if options.get("action") == "append" or options.get("nargs") == "*":  # else argparse calls the latter required
        options["default"] = []
    if not name.startswith("--"):
        options["metavar"] = name.upper()
    return name, {"help": help, **options}


def whole_number(text: str) -> int:
    """Return a number of at least 1, for ``type``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def flag(name: str, help: str) -> Argument:
    """Return an argument without a value, true where it is there."""
    return argument(name, help, action="store_true")


def print_promises(promises: Iterable[Promise]) -> None:
    """Print each promise with its result; exits with 1 when one is broken."""
    broken = 0
    for promise in promises:
        mark = {True: "kept", False: "BROKEN", None: "not said"}[promise.kept]
        print(f"{mark:9} {promise.says}" + (f": {promise.found}" if promise.found else ""), flush=True)
        broken += promise.kept is False
    if broken:
        sys.exit(1)


METHOD = argument("--method", "a method that params.yaml lists (pipelines/methods/METHOD.yaml)", required=True)
TASK, SIZE, SEED = (
    ("--task", "a task of grid.tasks in params.yaml (pipelines/tasks/TASK.yaml)"),
    ("--size", "training rows of the run, one of grid.sizes: a number or full"),
    ("--seed", "one of grid.seeds"),
)
PRESET = argument("--preset", "a preset, as `regft preset` runs it; params.yaml without it")
CHANGES = argument(
    "--set", "KEY=VALUE: a dotted key and a YAML value that replaces the preset's; may be repeated", action="append"
)
#: How a file of rows is written, where it does not tell.
FORMAT = (
    argument("--encoding", "of a text file that is not UTF-8, for instance cp1252"),
    argument("--delimiter", "between the columns of a .csv or .tsv, where its first line leaves it open"),
    argument("--sheet", "name of the sheet, where an .xlsx has several"),
)
#: Of the commands that read labels: columns beside those of text and label, and how labels are read.
ROWS = (
    argument("--pair", "column of the second text, where rows are pairs"),
    argument("--group", "column whose rows stay together (product, author, premise)"),
    argument("--kind", "kind of label, where the file leaves it open", choices=KINDS.names()),
    *FORMAT,
    argument(
        "--decimal", "decimal mark of numbers in text; the other one may stand between thousands", choices=(",", ".")
    ),
)
#: What an exported model can answer in (models/precision.py).
PRECISIONS = ("fp32", "bf16", "int8")
#: Of the commands that answer texts with an exported model.
SERVING = (
    argument("--text", "column of the text; by default that of the training data"),
    argument("--text-pair", "column of the second text of pairs; by default that of the training data"),
    argument("--precision", "bf16 and int8 are faster, with other last digits", default="fp32", choices=PRECISIONS),
    argument("--device", "auto, cpu, mps, cuda or cuda:N", default="auto"),
)
MODEL = argument("--model", "directory that `regft export` wrote", required=True)
DATA = "file with the texts: .csv, .tsv, .jsonl or .parquet, also .gz, or .xlsx"
OUT = "file to write: .csv or .jsonl"
OVERWRITE = flag("--overwrite", "replace an output that exists")


def format_of(arguments: argparse.Namespace) -> FileFormat:
    """Return how the file is written, as the options of ``FORMAT`` say. Raises ConfigError for a wrong one."""
    delimiter = {"\\t": "\t", "tab": "\t"}.get(arguments.delimiter, arguments.delimiter)
    said = {"delimiter": delimiter, "encoding": arguments.encoding, "sheet": arguments.sheet}
    said["decimal"] = getattr(arguments, "decimal", None)
    how, problems = validate(FileFormat, Document(said, {}, "command line"))
    if how is None:
        raise ConfigError(problems)
    return how


def asked_for(file: Path, arguments: argparse.Namespace) -> Asked:
    """Return a file of labelled rows with its columns, as the options of ``ROWS`` say."""
    from regft_core.fit.own_rows import Asked

    columns = arguments.text, arguments.label, arguments.pair, arguments.group
    ood = tuple(map(Path, getattr(arguments, "ood", ())))
    texts = getattr(arguments, "unlabelled", None)
    return Asked(file, *columns, arguments.kind, format_of(arguments), ood, texts and Path(texts))


def device_of(name: str) -> str:
    """Return the device that ``--device`` means on this machine. Raises ModelError when it is not there."""
    from regft_core.models.devices import visible_devices

    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name):
        hint = "one of auto, cpu, mps, cuda, cuda:N"
        raise ModelError("unknown-device", f"--device {name}: no such kind of device\n    -> {hint}")
    try:
        return visible_devices(name)[0]
    except ConfigError as error:
        hint = error.problems[0].hint
        raise ModelError("device-missing", f"--device {name}: not available on this machine\n    -> {hint}") from error


def served(arguments: argparse.Namespace) -> ServedModel:
    """Return the exported model, as ``SERVING`` says; in a project's folder its kinds of task are known."""
    from regft_core.serve.model import load_served

    if (Path.cwd() / "params.yaml").is_file():
        use_project(Path.cwd())
    model = load_served(Path(arguments.model), device_of(arguments.device), arguments.precision)
    return model.reading(arguments.text, arguments.text_pair)


def refuse_contradictions(wrong: list[tuple[Any, str]], hint: str) -> None:
    """Raise ConfigError with the messages whose first value is true: arguments that would be ignored, or that lack."""
    if messages := [message for is_wrong, message in wrong if is_wrong]:
        code, place = "contradicting-arguments", "command line"
        raise ConfigError([Problem(code, place, 0, "", message, hint) for message in messages])


def open_preset(root: Path, name: str, changes: Iterable[str] = ()) -> Project:
    """Return a preset with ``--set`` changes as a project; the place of a mistake is its own file, or that change."""
    return open_project(root, preset_file(root, name), preset_document(root, name, changes))


def project_or_preset(root: Path, preset: str | None) -> Project:
    """Return the project, or that of a preset's folder, which is brought up to date."""
    if preset is None:
        return open_project(root)
    open_preset(root, preset)  # a mistake is reported with the preset's own lines
    return open_project(lay_out(root, preset))


#: A command's function, which is called with the working directory and the parsed arguments.
Main = Callable[[Path, argparse.Namespace], None]
#: Name of a command, as far as its file was imported -> function and arguments.
COMMANDS: dict[str, tuple[Main, tuple[Argument, ...]]] = {}


def command(*arguments: Argument) -> Callable[[Main], Main]:
    """Make a function the command of its name; its docstring is the help (what it does, examples, the next step)."""

    def declare(main: Main) -> Main:
        COMMANDS[main.__name__.replace("_", "-")] = main, arguments
        return main

    return declare


def start(name: str) -> None:
    """Parse the command line and run a command; exits with an error's code.

    The project root is the working directory, where DVC runs stages.
    """
    main, arguments = COMMANDS[name]
    parser = argparse.ArgumentParser(
        prog=f"regft {name}",
        description=inspect.getdoc(main),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, width=min(shutil.get_terminal_size().columns, COLUMNS) - 2
        ),
    )
    for argument_name, options in arguments:
        parser.add_argument(argument_name, **options)
    output.guard()
    values = parser.parse_args()
    if "DVC_STAGE" in os.environ:
        # A killed `dvc repro` must not leave a training behind that nobody waits for.
        die_with_parent()
    # Nothing here needs the hub unless a task or the model names it; quiet its telemetry.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("REGFT_ONEDNN", "1")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # every retry; the error that ends them is printed
    try:
        main(Path.cwd(), values)
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("regft: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)

"""Arguments of commands with their help, and how a command runs: its errors have no traceback."""

from __future__ import annotations

import argparse
import inspect
import logging
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from regft_core import output
from regft_core.errors import ConfigError, Problem, RegftError
from regft_core.grid.executors import die_with_parent
from regft_core.schema.sources import FileFormat
from regft_core.settings.document import Document
from regft_core.settings.preset import preset_document, preset_file
from regft_core.settings.project import Project
from regft_core.settings.read_project import open_project
from regft_core.settings.validate import validated

COLUMNS = 80
#: Name and options of an argument, as ``argparse`` takes them.
Argument = tuple[str, dict[str, Any]]


def argument(name: str, help: str, **options: Any) -> Argument:
    if options.get("default"):
        help = f"{help} (default: {options['default']})"
    if options.get("action") == "append" or options.get("nargs") == "*":  # else argparse calls the latter required
        options["default"] = []
    if not name.startswith("--"):
        options["metavar"] = name.upper()
    return name, {"help": help, **options}


def whole_number(low: int = 1, high: float = math.inf) -> Callable[[str], int]:
    """Return the ``type`` of an argument that is a whole number between these."""

    def read(text: str) -> int:
        if text.isdecimal() and low <= int(text) <= high:
            return int(text)
        bounds = f"of at least {low}" if math.isinf(high) else f"from {low} to {high}"
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {bounds}")

    return read


def flag(name: str, help: str) -> Argument:
    return argument(name, help, action="store_true")


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


def format_of(arguments: argparse.Namespace) -> FileFormat:
    """Return how the file is written, as the options of ``FORMAT`` say. Raises ConfigError for a wrong one."""
    delimiter = {"\\t": "\t", "tab": "\t"}.get(arguments.delimiter, arguments.delimiter)
    said = {"delimiter": delimiter, "encoding": arguments.encoding, "sheet": arguments.sheet}
    said["decimal"] = getattr(arguments, "decimal", None)
    return validated(FileFormat, Document(said, {}, "command line"))


def refuse_contradictions(wrong: list[tuple[Any, str]], hint: str) -> None:
    """Raise ConfigError with the messages whose first value is true: arguments that would be ignored, or that lack."""
    if messages := [message for is_wrong, message in wrong if is_wrong]:
        code, place = "contradicting-arguments", "command line"
        raise ConfigError([Problem(code, place, 0, "", message, hint) for message in messages])


def open_preset(root: Path, name: str, changes: Iterable[str] = ()) -> Project:
    """Return a preset with ``--set`` changes as a project; the place of a mistake is its own file, or that change."""
    return open_project(root, preset_file(root, name), preset_document(root, name, changes))


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
    width = min(shutil.get_terminal_size().columns, COLUMNS) - 2
    shown = partial(argparse.RawDescriptionHelpFormatter, width=width)
    parser = argparse.ArgumentParser(f"regft {name}", description=inspect.getdoc(main), formatter_class=shown)
    for argument_name, options in arguments:
        parser.add_argument(argument_name, **options)
    output.guard()
    values = parser.parse_args()
    if "DVC_STAGE" in os.environ:
        # A killed `dvc repro` must not leave a training behind that nobody waits for.
        die_with_parent()
    # Nothing here needs the hub unless a task or the model names it; quiet its telemetry.
    for quiet in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(quiet, "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # else every retry; the error that ends them is printed
    os.environ.setdefault("REGFT_ONEDNN", "1")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        main(Path.cwd(), values)
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("regft: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)

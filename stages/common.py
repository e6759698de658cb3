"""What every stage shares: the command line with its help, and errors without a traceback."""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core import output
from regft_core.errors import ConfigError, ModelError, Problem, RegftError
from regft_core.grid.processes import die_with_parent
from regft_core.schema.file_format import FileFormat

if TYPE_CHECKING:
    from regft_core.runs.run import Stage


@dataclass(frozen=True)
class Argument:
    """One ``--name VALUE`` of a command line, or a value without a name.

    Attributes:
        help: what the value means, shown by ``--help``.
        default: makes the argument optional, as does ``required=False`` (then None).
        flag: no value; true when given.
        repeated: may be given more than once; a list.
        positional: given without its name.
        choices: the values that are allowed; any without it.
    """

    name: str
    help: str
    required: bool = True
    default: Any = None
    kind: Callable[[str], Any] = str
    flag: bool = False
    repeated: bool = False
    positional: bool = False
    choices: tuple[str, ...] | None = None

    def add(self, parser: argparse.ArgumentParser) -> None:
        if self.positional:
            count = None if self.required else "?"
            parser.add_argument(self.name, help=self.help, metavar=self.name.upper(), type=self.kind, nargs=count)
            return
        if self.flag:
            parser.add_argument(f"--{self.name}", action="store_true", help=self.help)
            return
        shown = f" (default: {self.default})" if self.default is not None else ""
        parser.add_argument(
            f"--{self.name}",
            required=self.required and self.default is None,
            default=[] if self.repeated else self.default,
            action="append" if self.repeated else "store",
            type=self.kind,
            choices=self.choices,
            metavar=None if self.choices else self.name.upper().replace("-", "_"),
            help=self.help + shown,
        )


def whole_number(text: str) -> int:
    """A number of at least 1, for ``Argument.kind``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


METHOD = Argument("method", "a method that params.yaml lists (pipelines/methods/METHOD.yaml)")
TASK = Argument("task", "a task of grid.tasks in params.yaml (pipelines/tasks/TASK.yaml)")
SIZE = Argument("size", "training rows of the run, one of grid.sizes: a number or full")
SEED = Argument("seed", "one of grid.seeds", kind=int)
CHANGES = Argument(
    "set",
    "KEY=VALUE: a dotted key and a YAML value that replaces the preset's; may be repeated",
    required=False,
    repeated=True,
)
#: What an exported model can answer in (models/precision.py).
PRECISIONS = ("fp32", "bf16", "int8")
#: How a file of rows is written, where it does not tell.
FORMAT = (
    Argument("encoding", "of a text file that is not UTF-8, for instance cp1252", required=False),
    Argument("delimiter", "between the columns of a .csv or .tsv, where its first line does not tell", required=False),
    Argument("sheet", "of an .xlsx that has several", required=False),
)
#: Of the commands that read labels.
DECIMAL = Argument(
    "decimal", "decimal mark of numbers in text; the other one may stand between thousands", False, choices=(",", ".")
)
#: Of the commands that read a file of texts with an exported model.
SERVING = (
    Argument("model", "directory that `regft export` wrote"),
    Argument("data", "file with the texts: .csv, .tsv, .jsonl or .parquet, also .gz, or .xlsx"),
    Argument("out", "file to write: .csv or .jsonl"),
    Argument("text", "column of the text; by default that of the training data", required=False),
    Argument("text-pair", "column of the second text of pairs; by default that of the training data", required=False),
    Argument("precision", "bf16 and int8 are faster, with other last digits", default="fp32", choices=PRECISIONS),
    Argument("device", "auto, cpu, mps, cuda or cuda:N", default="auto"),
    Argument("overwrite", "replace an output that exists", flag=True),
)


def format_of(arguments: argparse.Namespace) -> FileFormat:
    """Return how the file is written, as the options of ``FORMAT`` say. Raises ConfigError for a wrong one."""
    from regft_core.schema.tasks import check_encoding

    encoding, delimiter = arguments.encoding, arguments.delimiter
    try:
        if encoding is not None:
            check_encoding(encoding)
    except ValueError as error:
        problem = Problem("unknown-encoding", "--encoding", 0, "", str(error), "leave it out for UTF-8")
        raise ConfigError([problem]) from error
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        message = f"'{delimiter}' is not one character that separates columns"
        raise ConfigError([Problem("wrong-delimiter", "--delimiter", 0, "", message, "give ; or tab or another one")])
    return FileFormat(delimiter, encoding, sheet=arguments.sheet, decimal=getattr(arguments, "decimal", None))


#: Of the stages that compute the grid.
GRID = (
    Argument("only", "METHOD/TASK: only these cells, with what they need; may be repeated", False, repeated=True),
    Argument("keep-going", "end with 0 although cells failed: stage report lists them, and fails", flag=True),
)


def device_of(given: str) -> str:
    """The device that ``--device`` means on this machine. Raises ModelError when it is not there."""
    from regft_core.grid.executors import visible_devices

    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", given):
        raise ModelError(
            "unknown-device", f"--device {given}: no such kind of device\n    -> one of auto, cpu, mps, cuda, cuda:N"
        )
    try:
        return visible_devices(given)[0]
    except ConfigError as error:
        problem = error.problems[0]
        raise ModelError(
            "device-missing", f"--device {given}: not available on this machine\n    -> {problem.hint}"
        ) from error


#: ``regft <command>`` where that was called, for its help.
PROGRAM = ""


def called_as(program: str) -> str:
    """How a command was called, for its help: as ``regft ...``, else as ``program``."""
    return PROGRAM or program


def compute_stage(root: Path, stage: Stage, arguments: argparse.Namespace) -> None:
    """Compute a stage of the grid; with ``--only`` the stages before it, too. Exits with 1 when cells failed."""
    from regft_core.grid.compute import compute, compute_only

    if arguments.only:
        failures = compute_only(root, stage, arguments.only)
    else:
        failures = compute(root, stage)
    if failures and not arguments.keep_going:
        sys.exit(1)


def run(main: Callable[[Path, argparse.Namespace], None], *arguments: Argument) -> None:
    """Parse the command line, call ``main(root, arguments)``, exit.

    The project root is the working directory, where DVC runs stages. ``--help`` shows the module's
    docstring, which says what the stage does, and every argument.
    """
    module = inspect.getmodule(main)
    name = Path(module.__file__ or "").stem if module is not None else None
    parser = argparse.ArgumentParser(
        prog=called_as(f"python -m stages.{name}"),
        description="\n\n".join(filter(None, [inspect.getdoc(module), inspect.getdoc(main)])),
        epilog="DVC runs stages in the project's folder: `dvc repro` runs those whose inputs changed."
        if name in DVC_STAGES
        else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for argument in arguments:
        argument.add(parser)
    output.guard()
    given = parser.parse_args()
    if "DVC_STAGE" in os.environ:
        # A killed `dvc repro` must not leave a training behind that nobody waits for.
        die_with_parent()
    # Nothing here needs the hub unless a task or the model names it; quiet its telemetry.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("REGFT_ONEDNN", "1")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # every retry; the error that ends them is said
    try:
        main(Path.cwd(), given)
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        again = "nothing was written"
        if name in DVC_STAGES or name == "predict":
            command = "`dvc repro`" if name in DVC_STAGES else "the same command"
            again = f"run {command} again to continue where it stopped"
        print(f"regft: interrupted; {again}", file=sys.stderr)
        sys.exit(130)


#: The variable with a file that stage report makes when it has printed the leaderboard; `regft run` asks.
PRINTED = "REGFT_PRINTED"
#: The others are for people only.
DVC_STAGES = ("subsample", "search", "finetune", "evaluate", "report")


@contextmanager
def told_at_changes(changes: Sequence[str]) -> Iterator[None]:
    """The place of a mistake that ``--set`` made is that change: the file with it is not the user's."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([_at_its_change(problem, changes) for problem in error.problems]) from None


def _at_its_change(problem: Problem, changes: Sequence[str]) -> Problem:
    for change in changes:
        key = change.partition("=")[0].strip()
        if problem.key == key or problem.key.startswith((f"{key}.", f"{key}[")):
            return replace(problem, file=f"--set {change}", line=0)
    return problem

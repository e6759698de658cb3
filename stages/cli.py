"""The command ``regft``: one subcommand for each file of this folder, and a few names for parts of one.

A subcommand runs its file as ``python -m regft_core.stages.<file>`` does, in this process. So its arguments are
declared once, where it reads them, and its first line here is the first line of its own help.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import io
import re
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regft_core import __version__, output

from . import common

FOLDER = Path(__file__).parent
#: Files that are no command: this one, and what others share.
NO_COMMAND = ("__init__", "cli", "common", "config")
CODES = """\
exit codes
  0  done                          6  the run store is damaged, locked or cannot be written
  1  cells failed                  7  an export differs from what was trained
  2  configuration, wrong command  8  out of memory
  3  data                          9  code changed while it ran
  4  encoder or exported model    10  the plan is out of date
  5  a run failed                 11  an input changed while it was read
130  interrupted; run it again to go on"""
BASH = """\
# bash: eval "$(regft completion)"    zsh: autoload -U bashcompinit && bashcompinit, then the same
_regft() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{names}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}} $word" in
{cases}
  esac
}}
complete -o default -F _regft regft"""


@dataclass(frozen=True)
class Command:
    """What a subcommand runs: a module, its first arguments, and what it is in one line."""

    module: str
    first: tuple[str, ...] = ()
    says: str = ""

    @property
    def help(self) -> str:
        """One line: ``says``, or the first line of the module."""
        if self.says:
            return self.says
        text = (FOLDER / f"{self.module.rpartition('.')[2]}.py").read_text(encoding="utf-8")
        return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0].rstrip(".").replace(" (not a DVC stage)", "")


#: In the order in which a project needs them; files that are not named here follow.
ORDER = (
    "init",
    "check",
    "plan",
    "run",
    "report",
    "export",
    "predict",
    "serve",
    "fit",
    "pick",
    "methods",
    "test-method",
)
_CONFIG = "regft_core.stages.config"
#: Subcommands that are part of a file.
PARTS = {
    "check": Command(_CONFIG, ("check",), "Check every YAML file that the job uses, and list all errors"),
    "plan": Command(_CONFIG, ("plan",), "Show what would be trained, and how long it takes; train nothing"),
    "controls": Command(_CONFIG, ("controls",), "List controls of the listed methods that are missing, or add them"),
    "sync": Command("regft_core.tracking", ("sync",), "Bring MLflow's database up to date with what was run"),
    "ui": Command("regft_core.tracking", ("ui",), "Show finished runs in MLflow's page on this machine"),
}


def commands() -> dict[str, Command]:
    """Subcommand -> what it runs."""
    files = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NO_COMMAND)
    found = {name.replace("_", "-"): Command(f"regft_core.stages.{name}") for name in files} | PARTS
    return {name: found[name] for name in (*(one for one in ORDER if one in found), *sorted(set(found) - set(ORDER)))}


def usage(known: dict[str, Command]) -> str:
    """The page of ``regft --help``."""
    width = max(map(len, known))
    lines = [f"  {name:{width}}  {command.help}" for name, command in known.items()]
    return "\n".join(
        (
            f"regft {__version__}: find out which fine-tuning method works best on your few hundred labelled texts",
            "\nusage: regft COMMAND ...        regft COMMAND --help says what a command does, with examples",
            "\ncommands",
            *lines,
            f"  {'completion':{width}}  Print the completion of these commands for bash and zsh",
            "\nexamples",
            "  regft init reviews --task reviews.csv --text review --label verdict",
            "  cd reviews && regft check && regft run",
            f"\n{CODES}",
        )
    )


def completion(known: dict[str, Command]) -> str:
    """A script for bash and zsh: subcommands, and the options that each one declares."""
    cases = [
        f'    "{name} -"*) COMPREPLY=($(compgen -W "{" ".join(options(command))}" -- "$word"));;'
        for name, command in known.items()
    ]
    return BASH.format(names=" ".join([*known, "completion"]), cases="\n".join(cases))


def options(command: Command) -> list[str]:
    """The options of a command, as its own help names them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        dispatch("regft", command, ["--help"])
    return sorted(set(re.findall(r"^ +(?:-h, )?(--[a-z][a-z-]*)", shown.getvalue(), re.MULTILINE)))


def dispatch(name: str, command: Command, arguments: Sequence[str]) -> None:
    """Run a subcommand with the rest of the command line; it exits with its own code."""
    common.PROGRAM = "regft" if command.first else f"regft {name}"
    sys.argv[1:] = [*command.first, *arguments]
    runpy.run_module(command.module, run_name="__main__", alter_sys=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, 2 for a command that is not there."""
    output.guard()
    given = list(sys.argv[1:] if arguments is None else arguments)
    known = commands()
    name = given[0] if given else "--help"
    if name in ("-h", "--help", "help"):
        print(usage(known))
        return 0
    if name == "--version":
        name = "version"
    if name == "completion":
        print(completion(known))
        return 0
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "`regft --help` lists the commands"
        print(f"regft: unknown command '{name}' [unknown-command]\n    -> {hint}", file=sys.stderr)
        return 2
    dispatch(name, known[name], given[1:])
    return 0

"""The command ``regft``: a subcommand for each function of this folder that ``common.command`` declares.

Only the file of the subcommand that runs is imported: the others' first lines are read from their text.
"""

from __future__ import annotations

import ast
import importlib
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from regft_core import __version__, output
from regft_core.names import nearest

from .common import COMMANDS, start

#: When this process began, as ``time.monotonic`` tells it: what a command imports takes seconds.
BEGAN = time.monotonic()
FOLDER = Path(__file__).parent
#: The commands as ``regft --help`` groups them, in the order in which a project needs them.
GROUPS = {
    "from labelled rows to a model": ("fit", "predict", "serve", "pick"),
    "compare methods": ("init", "check", "plan", "run", "export", "ui"),
    "choose and add methods": ("methods", "controls", "new", "test-method", "test-metric", "test-evaluation"),
    "papers": ("preset", "submission"),
    "stages, which `regft run` runs": ("subsample", "search", "finetune", "evaluate", "report"),
    "keep": ("fetch", "store", "sync", "version"),
}
CODES = """\
exit codes
  0  done                          6  the run store is damaged or locked
  1  runs or a tracker failed      7  an export differs from what was trained
  2  configuration, wrong command  8  out of memory
  3  data                          9  code or an input changed; run again
  4  encoder or exported model    130  interrupted; run it again to go on
  5  a run failed"""
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


def commands() -> list[str]:
    return [name for names in GROUPS.values() for name in names]


@cache
def declared() -> dict[str, tuple[str, str]]:
    """Return command -> the file that declares it and the first line of its help."""
    found = {}
    for file in sorted(FOLDER.glob("*.py")):
        for one in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.FunctionDef) and "command" in [ast.unparse(part)[:7] for part in one.decorator_list]:
                help = (ast.get_docstring(one) or "").splitlines()
                found[one.name.replace("_", "-")] = file.stem, help[0].rstrip(".")
    return found


def usage() -> str:
    lines = [
        f"regft {__version__}: find the fine-tuning method that works best on your labelled texts",
        "\nusage: regft COMMAND ...\n       regft COMMAND --help    what a command does, with examples",
    ]
    for group, names in GROUPS.items():
        lines += [f"\n{group}", *(f"  {name:15}  {declared()[name][1]}" for name in names)]
    lines += [f"  {'completion':15}  Print the completion of these commands for bash and zsh", "\nexamples"]
    lines += ["  regft init reviews --task reviews.csv --text review --label verdict"]
    return "\n".join([*lines, "  cd reviews && regft check && regft run", f"\n{CODES}"])


def completion(names: Sequence[str]) -> str:
    """Return a script for bash and zsh: subcommands, and the options that each one declares."""
    cases = [f'    "{name} -"*) COMPREPLY=($(compgen -W "{" ".join(options(name))}" -- "$word"));;' for name in names]
    return BASH.format(names=" ".join([*names, "completion"]), cases="\n".join(cases))


def options(name: str) -> list[str]:
    """Return the options of a command."""
    importlib.import_module(f".{declared()[name][0]}", __package__)
    return sorted(["--help", *(option for option, _ in COMMANDS[name][1] if option.startswith("--"))])


def dispatch(name: str, arguments: Sequence[str]) -> None:
    sys.argv[1:] = arguments
    importlib.import_module(f".{declared()[name][0]}", __package__)
    start(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code, 2 for a command that is not there."""
    output.guard()
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help", "help"):
        print(usage())
    elif name == "completion":
        print(completion(commands()))
    elif name in commands() or name == "--version":
        dispatch(name.removeprefix("--"), rest)
    else:
        near = nearest(name, commands())
        hint = f"did you mean '{near}'?" if near else "`regft --help` lists the commands"
        print(f"regft: unknown command '{name}' [unknown-command]\n    -> {hint}", file=sys.stderr)
        return 2
    return 0

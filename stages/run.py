"""The whole pipeline, of a project, of one run, of a preset; and its stages."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from textwrap import fill

from regft_core import output
from regft_core.disk.canonical import json_text
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, DataError, Problem, RunFailed
from regft_core.grid.cell_keys import forget_failures, grid_rows, outdated_cells, read_failures, stale_cells, write_plan
from regft_core.grid.compute import compute, compute_only
from regft_core.grid.data import prepare
from regft_core.grid.missing_files import needs_text, require_named_sets
from regft_core.grid.repro import repro
from regft_core.grid.time import estimate, still_to_train
from regft_core.names import listing, plural
from regft_core.runs.context import Stage
from regft_core.runs.work import Work
from regft_core.settings.preset import FOLDER, lay_out, lay_out_small, preset_file
from regft_core.settings.project import cells
from regft_core.settings.read_project import open_project
from regft_core.settings.run_config import lay_out_config
from regft_core.settings.yaml_paths import LEADERBOARD, PRESETS, names, no_project

from .common import CHANGES, COLUMNS, argument, command, flag, open_preset, refuse_contradictions

#: The variable with a file that stage report makes when it has printed the leaderboard, in whichever process.
PRINTED = "REGFT_PRINTED"
LOG_COLUMNS = 180


@command(argument("--config", "config.yaml of a run in MLflow: run it again instead of the project"))
def run(root: Path, arguments: argparse.Namespace) -> None:
    """Train what is out of date; show the leaderboard.

    Runs `dvc repro`: results that are up to date are reused. An interrupted run
    continues where it stopped. Exits with 5 when runs failed. With --config one run
    of MLflow is repeated in a folder of its own.

    examples
      regft run
      regft run --config mlartifacts/RUN/artifacts/config.yaml

    next: open reports/report.html; regft export --method METHOD --refit
    """
    require_project(root)
    if arguments.config is None:
        run_and_show(root)
        return
    folder = lay_out_config(root, Path(arguments.config))
    project = open_project(folder)
    print(f"{arguments.config} runs in {folder.relative_to(root)}", flush=True)
    run_and_show(folder)
    for cell in cells(project):
        for record in Work(folder).finetune(cell).runs:
            print(f"{cell.directory}, seed {record.seed}: run {record.key}")


def run_and_show(root: Path) -> None:
    """`dvc repro` with the leaderboard at the end, also when there was nothing to do; exits when cells failed."""
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed"
        if done := repro(root, {PRINTED: str(printed)}):
            sys.exit(done)
        if not printed.is_file() and (root / LEADERBOARD).is_file():
            print((root / LEADERBOARD).read_text(encoding="utf-8"), end="")
            print("nothing was out of date; report: reports/report.html")


def require_project(root: Path) -> None:
    needed = {"params.yaml": "a project", "dvc.yaml": "a pipeline", ".dvc": "a DVC project"}
    problems = [no_project(root, name, what) for name, what in needed.items() if not (root / name).exists()]
    if not (root / ".dvc").exists():
        problems[-1] = replace(problems[-1], hint="run `dvc init` here (without git: `dvc init --no-scm`)")
    config = root / ".dvc" / "config"
    without_git = config.is_file() and "no_scm = true" in config.read_text(encoding="utf-8").lower()
    if not (problems or without_git or shutil.which("git")):
        hint = "install git, or write 'no_scm = true' below [core] in .dvc/config"
        problems.append(Problem("git-missing", ".dvc/config", 0, "", "wants git, which is not on the PATH", hint))
    if problems:
        raise ConfigError(problems)


@command(
    argument("name", f"a preset; it runs in {FOLDER}/NAME. Without it: the list", nargs="?"),
    CHANGES,
    flag("--plan", "show what the preset needs and what of it is missing; run nothing"),
    argument(
        "--scale",
        "full; or small: a few rows, seeds and steps on the packaged encoder, in presets/NAME.small, marked "
        "everywhere as not the paper's experiment",
        default="full",
        choices=("full", "small"),
    ),
)
def preset(root: Path, arguments: argparse.Namespace) -> None:
    """Run a preset in a folder of its own.

    Runs pipelines/presets/NAME.yaml in presets/NAME. params.yaml and work/ are
    left alone; runs go to the project's store. A second call runs what is stale,
    and an interrupted one continues. execution and store are those of params.yaml
    unless the preset has its own.

    examples
      regft preset                             list the presets
      regft preset hype_table3 --plan          data, encoder, hours
      regft fetch --preset hype_table3         download data and encoder
      regft preset hype_table3                 run it
      regft preset hype_table3 --scale small   a trial of minutes, marked as such
      regft preset hype_table3 --set model.name=minilm --set 'grid.seeds=[0, 1]'

    next: open presets/hype_table3/reports/report.html
    """
    if arguments.name is None:
        lost = arguments.set or arguments.plan or arguments.scale != "full"
        refuse_contradictions([(lost, "NAME is missing: options are for one preset")], "`regft preset` lists them")
        print(listed(root))
        return
    open_preset(root, arguments.name, arguments.set)  # a mistake is reported with the preset's own lines
    lay = lay_out_small if arguments.scale == "small" else lay_out
    folder = lay(root, arguments.name, arguments.set)
    project = open_project(folder)
    if arguments.plan:
        name = shlex.join([arguments.name, *(part for change in arguments.set for part in ("--set", change))])
        again, fetch, rows = f"regft preset {name}", f"regft fetch --preset {name}", grid_rows(project)
        if (mark := project.params.small_scale) is not None:
            print(mark.mark)
            again, fetch = f"{again} --scale small", f"(cd {folder.relative_to(root)} && regft fetch)"
        print(estimate(project, rows).line())
        print(needs_text(project, again, fetch))
        return
    require_named_sets(project)  # before DVC, whose own words would stand around the error
    here = folder.relative_to(root)
    if project.params.small_scale is not None:
        print(project.params.small_scale.mark)
    for task, sets in project.left_out.items():
        print(f"{task} is not evaluated on {', '.join(f'{judge} ({one.why})' for judge, one in sets.items())}")
    print(f"preset {arguments.name} runs in {here}; the dry run: cd {here} && regft plan", flush=True)
    if done := repro(folder):
        sys.exit(done)
    print(f"report: {here}/reports/report.html")


def listed(root: Path) -> str:
    lines = []
    for name in names(root, PRESETS):
        head = (root / preset_file(root, name)).read_text(encoding="utf-8").partition("\n")[0]
        text = f"  {name}: {head.lstrip('# ')}" if head.startswith("#") else f"  {name}"
        lines.append(fill(text, COLUMNS, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join([*lines, "what one needs: regft preset NAME --plan"])


GRID = (
    argument("--only", "METHOD/TASK or METHOD: only these, with what they need; may be repeated", action="append"),
    flag("--keep-going", "exit with 0 even if runs failed; the stage report lists them and exits with 5"),
)


def _compute(stage: Stage, root: Path, arguments: argparse.Namespace) -> None:
    """Compute a stage of the grid; with ``--only`` the stages before it, too. Exits with 1 where runs failed."""
    failures = compute_only(root, stage, arguments.only) if arguments.only else compute(root, stage)
    if failures and not arguments.keep_going:
        sys.exit(1)


@command()
def subsample(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 1: prepare the rows, plan every run.

    Writes work/datasets, work/subsamples, work/lengths and work/plan. `dvc repro`
    runs it first, each time; up-to-date files are left alone.

    examples
      regft subsample

    next: regft plan
    """
    project = open_project(root)
    prepare(project)
    write_plan(project)
    forget_failures(root)
    if (stale := stale_cells(root)) and (time := still_to_train(project, stale)) is not None:
        print(time.line())


@command(*GRID)
def search(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 2: trials of tuned methods, phases before fine-tuning.

    Writes work/search for every cell that has such phases. `dvc repro` runs it.

    examples
      regft search --only lp_ft/film_polarity

    next: regft finetune
    """
    _compute("search", root, arguments)


@command(*GRID)
def finetune(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 3: train the last phase of every run, evaluate each.

    Writes work/finetune; the weights are in the run store. A killed run continues
    when repeated. `dvc repro` runs it.

    examples
      regft finetune --only lp_ft/film_polarity

    next: regft evaluate
    """
    _compute("finetune", root, arguments)


@command(*GRID)
def evaluate(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 4: scores on validation and out-of-distribution sets.

    Writes work/evaluate: scores, the prediction for each row, and the results of
    further analyses. `dvc repro` runs it.

    examples
      regft evaluate --only lp_ft/film_polarity

    next: regft report
    """
    _compute("evaluate", root, arguments)


@command(flag("--json", "print reports/results.json instead of the table, for scripts"))
def report(root: Path, arguments: argparse.Namespace) -> None:
    """Stage 5: the report: page, tables, JSON, plots, and MLflow.

    The last stage of `dvc repro`. Reads the evaluations of the grid, writes
    reports/, and prints the leaderboard. Exits with 5 when runs failed, and lists
    them.

    examples
      regft report
      regft report --json

    next: open reports/report.html
    """
    from rich.console import Console

    from regft_core.report import project_inputs, write_report
    from regft_core.report.leaderboard import show
    from regft_core.tracking import sync

    project, failures = open_project(root), read_failures(root)
    planned = [cell for cell in cells(project) if cell.directory not in failures]
    if not planned:
        raise _failed(failures)
    if old := outdated_cells(project, planned):
        message = f"not run as it is configured now: {listing(cell.directory for cell in old)}"
        raise DataError("outdated-evaluation", f"{message}\n    -> run `dvc repro`, or `regft run`")
    report = write_report(project_inputs(project, planned, failures))
    if arguments.json:
        output.data().write(json_text(report.results))
    else:
        show(report, output.console(width=None if sys.stdout.isatty() else LOG_COLUMNS))
    show(report, Console(file=(text := io.StringIO()), width=COLUMNS))
    write_text(root / LEADERBOARD, text.getvalue())  # what `regft run` shows when nothing is stale
    if PRINTED in os.environ:
        Path(os.environ[PRINTED]).touch()
    said = sys.stderr if arguments.json else sys.stdout
    print(sync(project), file=said)  # after the report, so that its figures are there too
    print("report: reports/report.html    runs: regft ui", file=said)
    if failures:
        raise _failed(failures)


def _failed(failures: dict[str, str]) -> RunFailed:
    lines = [f"  {cell}: {reason}" for cell, reason in failures.items()]
    text = f"{plural(len(failures), 'cell')} without a result:"
    return RunFailed("cells-failed", "\n".join([text, *lines, "  -> mend the cause and run `dvc repro` again"]))

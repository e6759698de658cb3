"""Parts of your own: write them, test them."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.fit.new_method import new_method

from .common import argument, command, print_promises


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
    from regft_core.contract.metric import check_metric

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
    from regft_core.contract.evaluation import check_evaluation

    print_promises(check_evaluation(root, arguments.name))

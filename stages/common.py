"""What every stage shares: the command line, and errors without a traceback."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from regft_core.errors import RegftError
from regft_core.runs.processes import die_with_parent


def run(main: Callable[[Path, argparse.Namespace], None], *names: str) -> None:
    """Parse ``--name VALUE`` for each of ``names``, call ``main(root, arguments)``, exit.

    The project root is the working directory, where DVC runs stages.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name in names:
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    if "DVC_STAGE" in os.environ:
        # A killed `dvc repro` must not leave a training behind that nobody waits for.
        die_with_parent()
    # Nothing here needs the hub unless a task or the model names it; quiet its telemetry.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        main(Path.cwd(), arguments)
    except RegftError as error:
        print(f"regft: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("regft: interrupted; run `dvc repro` again to continue where it stopped", file=sys.stderr)
        sys.exit(130)

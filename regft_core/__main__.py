"""``regft``, and ``python -m regft_core``: every command of ``stages`` under one name."""

from __future__ import annotations

import sys

try:
    from regft_core.stages.cli import main
except ModuleNotFoundError as error:  # DVC calls the first Python of the PATH, also where dvc itself has another one
    if (error.name or "").startswith("regft_core"):
        raise
    sys.exit(
        f"regft: {sys.executable} has no package '{error.name}', which regft needs [not-installed]\n"
        "    -> activate the environment that regft is installed in (source .venv/bin/activate), and call this again"
    )

if __name__ == "__main__":
    sys.exit(main())

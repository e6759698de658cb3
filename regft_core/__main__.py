"""``regft``, and ``python -m regft_core``: every command of ``stages`` under one name."""

from __future__ import annotations

import sys

from regft_core.stages.cli import main

if __name__ == "__main__":
    sys.exit(main())

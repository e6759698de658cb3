"""Packages that only some executors need: imported when asked for, or refused with the command that installs them."""

from __future__ import annotations

import importlib
from typing import Any

from regft_core.errors import ConfigError, Problem


def require(package: str, extra: str, what: str) -> Any:
    """Import an optional ``package``, which ``pip install 'regft[extra]'`` brings.

    Raises ConfigError when it is not installed; ``what`` of the configuration needs it.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise  # it is there, but one of its own needs is not
        key, _, value = what.partition(": ")
        raise ConfigError(
            [
                Problem(
                    "package-missing",
                    "params.yaml",
                    0,
                    f"execution.{key}",
                    f"'{value}' needs the package '{package}', which is not installed",
                    f"in the project's environment: pip install -c constraints.txt -e '.[{extra}]'",
                )
            ]
        ) from error

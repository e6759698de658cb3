"""Promises of what people write themselves, tried in a project of their own (``trial.py``) with a tiny encoder."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regft_core.catalogue import OWN, Catalogue
from regft_core.errors import ConfigError, Problem, RegftError, text_of
from regft_core.evaluate.analysis_result import Unfit
from regft_core.names import suggestion


@dataclass(frozen=True)
class Promise:
    """One promise of a contract, and what was found; ``kept`` is None where there is nothing to try, for a reason."""

    says: str
    kept: bool | None
    found: str = ""


def require(catalogue: Catalogue, name: str) -> None:
    """Raise ConfigError where no file of the catalogue has the name."""
    if name not in catalogue.names():
        hint = suggestion(name, catalogue.names(), "there are")
        message = f"there is no {catalogue.what} '{name}'"
        raise ConfigError([Problem(f"unknown-{catalogue.what}", f"{name}.py", 0, "", message, hint)])


def tried(promise: str, law: Callable[[], str], unsaid: str = "") -> Promise:
    """Try a law, which returns what is wrong, or raises it: the user's own code runs in it.

    ``unsaid``: why there is nothing to try, which the law may also say by raising ``Unfit``.
    """
    if unsaid:
        return Promise(promise, None, unsaid)
    try:
        wrong = law()
    except Unfit as reason:
        return Promise(promise, None, str(reason))
    except Exception as error:
        wrong = raised(error)
    return Promise(promise, not wrong, wrong)


def raised(error: Exception) -> str:
    """The message of an exception, with its last place in the user's own code, else where it was raised."""
    if isinstance(error, RegftError):
        return text_of(error)
    frames = list(traceback.extract_tb(error.__traceback__))
    own = [
        frame for frame in frames if Path(frame.filename).parent.name in OWN and "site-packages" not in frame.filename
    ]
    place = (own or frames)[-1]
    return f"raises {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"

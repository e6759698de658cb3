"""Files and directories that are complete or absent, whatever kills the process; paths and JSON read by one rule.

Every write goes to a temporary name beside its target, is flushed to the disk, and is renamed into place; the parent
directory is flushed last. What a killed process leaves behind is removed a day later, with the next write beside it.
Needs a POSIX file system. New files have the rights of the umask.

``read_json`` reads all that regft did not just write itself: the store, ``work/``, exports. What it refuses is one
``StoreError`` with the code ``damaged-json``, so that no reader needs a list of exceptions.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from regft_core.disk.canonical import json_text
from regft_core.errors import StoreError

M = TypeVar("M", bound=BaseModel)

_FULL = "the disk (or quota) is full: free space and run again; what was complete before is unharmed"
_NOT_ALLOWED = "no permission to write there: change the permissions or choose another directory"
#: What to do about each of them; the others may go away by themselves.
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "the file system is read-only: choose a writable directory",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.ENAMETOOLONG: "most file systems allow 255 bytes for a name: give the task, the method or the directory a "
    "shorter one",
}
#: Those that are surely about writing; others may be about an input of the block.
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _refusal(error: Exception) -> OSError | None:
    """The ``OSError`` that ``error`` is or tells of: safetensors has an own type, and the number in its text."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error)) if type(error).__name__ == "SafetensorError" else None
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Re-raise any refusal of the operating system in the block as a ``StoreError`` about writing ``path``."""
    try:
        yield
    except Exception as error:
        if (refused := _refusal(error)) is None:
            raise
        advice = _ADVICE.get(refused.errno or 0, "what was complete before is unharmed; run again when it is mended")
        raise StoreError("cannot-write", f"cannot write {path}: {refused.strerror or error}; {advice}") from refused


#: Temporary names begin so. Those that are older than a day belong to a process that is gone.
TEMPORARY = ".tmp-"
LEFTOVER_SECONDS = 86_400.0


def temporary_name(target: Path) -> Path:
    """Return a name beside ``target`` that was not used before."""
    return target.parent / f"{TEMPORARY}{os.urandom(8).hex()}"


def sweep_stale(parent: Path) -> None:
    """Remove temporary names in ``parent`` that killed processes left."""
    with suppress(OSError):  # nothing there, or not ours to clean
        for path in parent.glob(f"{TEMPORARY}*"):
            with suppress(OSError):  # another process may be sweeping the same leftover
                if time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS:
                    remove(path)


def remove(path: Path) -> None:
    """Delete a file or a whole directory; what is already gone is fine. Raises ``OSError``."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """Make a file's content, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot flush a directory say EINVAL
            raise
    finally:
        os.close(descriptor)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary name whose file, complete and flushed, takes the place of ``target``; raises ``StoreError``."""
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent)
        temporary = temporary_name(target)
        try:
            yield temporary
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync(target.parent)


def write_text(path: Path | str, text: str) -> None:
    """Write a UTF-8 text file atomically, creating its directory; raises ``StoreError`` (disk full, read-only)."""
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
        fsync(temporary)


def write_json(path: Path | str, value: Any) -> None:
    """Write a file of ``json_text`` atomically; raises as both."""
    write_text(path, json_text(value))


def fill_in(path: Path | str, content: bytes) -> None:
    """Write a file of an ``atomic_directory``, which makes it durable, and directories on the way."""
    with explained(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)


@contextmanager
def atomic_directory(target: Path | str, temporary: Path | None = None) -> Iterator[Path]:
    """Yield an empty directory (at ``temporary``) that becomes ``target`` unless an error ends the block."""
    target = Path(target)
    temporary = temporary_name(target) if temporary is None else temporary
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent)
        remove(temporary)
        temporary.mkdir(parents=True)
    try:
        try:
            yield temporary
        except Exception as error:
            refused = _refusal(error)
            if refused is not None and refused.errno in _WRITING:
                with explained(target):
                    raise
            raise
        with explained(target):
            for parent, _, names in os.walk(temporary):
                for path in (*(Path(parent, name) for name in names), Path(parent)):
                    fsync(path)
            # ``target`` is the old directory, absent for an instant, or the new one, never mixed.
            old = temporary_name(target)
            with suppress(FileNotFoundError):
                os.rename(target, old)
            os.rename(temporary, target)
            fsync(target.parent)
            remove(old)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


# ---------------------------------------------------------------------------------------------------- paths, looked up


def expand(root: Path, text: str) -> Path:
    """``text`` as a path: ``~`` expanded, relative ones taken from ``root``.

    Raises ValueError, with the reason, for a home directory that cannot be found and for NUL characters.
    """
    if "\0" in text:
        raise ValueError("holds the NUL character")
    try:
        return root / Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"'{Path(text).parts[0]}' is not a known home directory") from None


def what_is(path: Path) -> str | None:
    """Describe what is at ``path``, links followed: ``a file``, why it cannot be looked up; None for nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"a link to {path.readlink()}, which does not exist" if path.is_symlink() else None
    except (OSError, ValueError) as error:  # too long, a loop of links, no permission, NUL
        return f"unreadable ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISREG(mode):
        return "a file"
    return "a directory" if stat.S_ISDIR(mode) else "neither a file nor a directory"


# ------------------------------------------------------------------------------------------------------- JSON, read


class Unreadable(StoreError):
    """The system refuses to read a file now, which says nothing about what is in it."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        what = f"{path}: cannot be read: {error.strerror}; make it readable, or run again when the machine can"
        super().__init__("cannot-read", what)


def read_json(path: Path | str, shape: type = object) -> Any:
    """Return the value of a JSON file.

    Args:
        shape: the type that the value must have (``dict``, ``list``).

    Raises:
        StoreError: ``file-missing``; ``damaged-json`` for what is not JSON in UTF-8, is nested too deeply, holds NaN
            or half of a surrogate pair, or is not of type ``shape``.
        Unreadable: the system refuses (``cannot-read``): the file may be intact.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise StoreError("file-missing", f"{path}: no such file\n    -> run `dvc repro`, which writes it") from error
    except OSError as error:
        raise Unreadable(path, error) from error
    try:
        text = content.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_not_finite)
        if "\\ud" in text.lower():  # half of a surrogate pair is read, and could not be written (SECURITY.md)
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(value, shape):
        raise _damaged(path, f"holds {type(value).__name__}, expected {shape.__name__}")
    return value


def read_record(path: Path | str, record: type[M]) -> M:
    """Return a JSON file as an instance of ``record``; raises as ``read_json``, also for what does not validate."""
    value = read_json(path)
    try:
        return record.model_validate(value)
    except ValidationError as error:
        raise _damaged(path, validation_text(error)) from error


def validation_text(error: ValidationError) -> str:
    """The first mistakes with their keys (``runs[2].cost.train_seconds``)."""
    mistakes = [f"{_key(mistake['loc'])}: {mistake['msg']}" for mistake in error.errors(include_url=False)]
    return "; ".join(mistakes[:3]) + (f" (and {len(mistakes) - 3} more)" if len(mistakes) > 3 else "")


def _key(place: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the file"


def _damaged(path: Path | str, reason: str) -> StoreError:
    return StoreError(
        "damaged-json", f"{path}: cannot be read as JSON: {reason}\n    -> write it again with the command that made it"
    )


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"holds {text}, which JSON does not have")

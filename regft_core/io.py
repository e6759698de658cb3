"""Files that are either complete or absent, whatever kills the process.

Every write goes to a temporary name beside its target, is flushed to the disk, and is renamed
into place; the parent directory is flushed last. A temporary name carries the machine, process
id and start time of its owner, so that leftovers of dead processes can be told from work in
progress. JSON has sorted keys and refuses what JSON cannot say (NaN, infinities, non-string
keys). Needs a POSIX file system.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import math
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from regft_core.errors import StoreError

_HOST = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname())[:32] or "host"
_OWNED = re.compile(r"(?:^|\.tmp-)(?P<host>\w+)\.(?P<pid>\d+)\.(?P<start>\d+)\.[0-9a-f]{8}$", re.ASCII)
#: Processes of another machine cannot be asked whether they live; their leftovers go after a week.
REMOTE_LEFTOVER_SECONDS = 7 * 86_400.0


# ----------------------------------------------------------------------------- JSON and hashes


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where}: JSON has no {value}; store null and say why in another field")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is {type(key).__name__}; JSON keys are strings")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise TypeError(f"{where}: {type(value).__name__} is not a JSON value; convert it to str, int, float, list or dict")


def canonical_json(value: Any) -> str:
    """Return the one text that stands for ``value``: sorted keys, no spaces, tuples as lists.

    Raises ``ValueError`` for NaN and infinities, ``TypeError`` for anything JSON cannot hold
    (both name the place), so that two different values never share a text by accident.
    """
    return json.dumps(_plain(value, "value"), sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def canonical_object(parts: Mapping[str, str]) -> str:
    """Return ``canonical_json`` of an object, given that of each of its values."""
    return "{" + ",".join(f"{canonical_json(name)}:{parts[name]}" for name in sorted(parts)) + "}"


def sha256_text(text: str) -> str:
    """Return the SHA-256 of ``text`` in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file's content; raises ``OSError`` when it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Unreadable(StoreError):
    """The system refuses to read a file now, which says nothing about what is in it."""


#: The caller may not, or the machine cannot at the moment; unlike a missing file or a bad disk block.
_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE})


def unless_refused(error: OSError, path: Path | str) -> None:
    """Raise ``Unreadable`` when the error is about who reads; return when it is about the file."""
    if error.errno in _REFUSALS:
        raise Unreadable(
            "cannot-read",
            f"{path}: cannot be read: {error.strerror}; make it readable for this user (or run again when the "
            "machine can), nothing is known to be damaged",
        ) from error


def read_json(path: Path | str) -> Any:
    """Return a JSON file's value; raises ``StoreError`` naming the file when it is not readable JSON."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise StoreError("file-missing", f"{path}: no such file\n    -> run `dvc repro`, which writes it") from error
    except OSError as error:
        unless_refused(error, path)
        raise StoreError(
            "cannot-read", f"{path}: cannot be read: {error.strerror or error}\n    -> check the file's permissions"
        ) from error
    try:
        return json.loads(content)
    except ValueError as error:
        raise StoreError(
            "not-json", f"{path}: cannot be read as JSON: {error}\n    -> run the stage that writes it again"
        ) from error


# ----------------------------------------------------------------------------- error messages


def explain_write_error(error: OSError, path: Path | str) -> StoreError:
    """Turn the operating system's refusal to write into a message that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "the disk (or quota) is full: free space and run again; what was complete before is unharmed"
    elif error.errno == errno.EROFS:
        advice = "the file system is read-only: choose a writable directory"
    elif error.errno in (errno.EACCES, errno.EPERM):
        advice = "no permission to write there: change the permissions or choose another directory"
    elif error.errno == errno.EFBIG:
        advice = "the file would exceed the allowed file size (see `ulimit -f`)"
    elif error.errno == errno.ENAMETOOLONG:
        longest = max((part for part in Path(path).parts), key=lambda part: len(os.fsencode(part)), default="")
        size = len(os.fsencode(longest))
        advice = (
            f"the longest name in this path has {size} bytes, most file systems allow 255, and some of them are "
            "needed for endings: give the task, the method or the directory a shorter name"
        )
    else:
        advice = "what was complete before is unharmed; run again when the cause is gone"
    return StoreError("cannot-write", f"cannot write {path}: {error.strerror or error}; {advice}")


def may_not_write(error: StoreError) -> bool:
    """Whether this is ``explained``'s error about a place that one may only read."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Re-raise any refusal of the operating system in the block as a ``StoreError`` about writing ``path``."""
    try:
        yield
    except Exception as error:
        if (refused := _refusal(error)) is None:
            raise
        raise explain_write_error(refused, path) from refused


def _refusal(error: Exception) -> OSError | None:
    """The ``OSError`` that ``error`` is or tells of: safetensors has an own type, and the number in its text."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error)) if type(error).__name__ == "SafetensorError" else None
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


# ----------------------------------------------------------------------------- temporary names


def _start_time(pid: int) -> int:
    # Field 22 of /proc/<pid>/stat, in clock ticks since boot: tells a process from a later one
    # that was given the same id. 0 where there is no /proc.
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _stem(name: str) -> str:
    # A name has 255 bytes at most, and a target may use all of them; the ending needs up to 76.
    return os.fsencode(name)[:150].decode("utf-8", "ignore")


def owned_name() -> str:
    """A file name, not used before, that tells which process it belongs to (``owner_is_dead``)."""
    pid = os.getpid()
    return f"{_HOST}.{pid}.{_start_time(pid)}.{os.urandom(4).hex()}"


def _temporary(target: Path) -> Path:
    return target.parent / f".{_stem(target.name)}.tmp-{owned_name()}"


def owner_is_dead(name: str, modified: float, lapse: float = REMOTE_LEFTOVER_SECONDS) -> bool:
    """Whether the process that gave a file its ``owned_name`` has ended; False for other names.

    A process of another machine counts as dead ``lapse`` seconds after the file was ``modified`` (seconds since 1970).
    """
    match = _OWNED.search(name)
    if match is None:
        return False
    if match["host"] != _HOST:
        return time.time() - modified > lapse
    pid, start = int(match["pid"]), int(match["start"])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    now = _start_time(pid)
    return bool(start and now and start != now)


def remove(path: Path) -> None:
    """Delete a file or a whole directory; what is already gone is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)


def sweep_stale(parent: Path, prefix: str = "") -> list[Path]:
    """Remove temporary leftovers in ``parent`` whose owner is dead; return what was removed.

    Only names that this module gives to temporaries of targets starting with ``prefix`` are
    candidates, so a user's own files are never touched.
    """
    removed, beginning = [], f".{_stem(prefix)}"
    try:
        entries = list(os.scandir(parent))
    except OSError:
        return []  # nothing there, or not ours to clean
    for entry in entries:
        if entry.name.startswith(beginning) and ".tmp-" in entry.name:
            with suppress(OSError):  # another process may be sweeping the same leftover
                if owner_is_dead(entry.name, entry.stat(follow_symlinks=False).st_mtime):
                    remove(Path(entry.path))
                    removed.append(Path(entry.path))
    return removed


# ----------------------------------------------------------------------------- files


def fsync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot flush a directory say EINVAL
            raise
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write a file atomically, creating its directory; raises ``StoreError`` (disk full, read-only)."""
    target = Path(path)
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent, target.name)
        temporary = _temporary(target)
        try:
            _write_new(temporary, content, flush=True)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync_directory(target.parent)


def _write_new(path: Path, content: bytes, *, flush: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if flush:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fill_in(path: Path | str, content: bytes) -> None:
    """Write a new file of a directory that nobody sees yet, creating directories on the way; raises ``StoreError``.

    It is neither atomic nor durable: who fills a directory calls ``fsync_tree`` before renaming it into place.
    """
    target = Path(path)
    with explained(target):
        try:
            _write_new(target, content, flush=False)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_new(target, content, flush=False)


def write_text(path: Path | str, text: str) -> None:
    """Write a UTF-8 text file atomically; raises ``StoreError``."""
    write_bytes(path, text.encode("utf-8"))


def json_text(value: Any) -> str:
    """Readable JSON: sorted keys, two spaces, final newline.

    Raises ``ValueError``/``TypeError`` for NaN and for values that are not JSON.
    """
    return json.dumps(_plain(value, "value"), sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def write_json(path: Path | str, value: Any) -> None:
    """Write a file of ``json_text`` atomically.

    Raises ``StoreError`` when it cannot be written, and like ``json_text`` (nothing is written then).
    """
    write_text(path, json_text(value))


@contextmanager
def atomic_file(target: Path | str) -> Iterator[IO[str]]:
    """Yield a UTF-8 text file (no newline translation) that becomes ``target`` when the block ends without an error.

    On an error nothing of it stays and the old ``target`` is untouched. Raises ``StoreError``.
    """
    target = Path(target)
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent, target.name)
        temporary = _temporary(target)
        file = open(temporary, "x", encoding="utf-8", newline="")  # noqa: SIM115 - closed before it is renamed
    try:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
                raise explain_write_error(error, target) from error
            raise
        finally:
            with suppress(OSError):
                file.close()
        with explained(target):
            os.replace(temporary, target)
            fsync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


# ----------------------------------------------------------------------------- directories


def fsync_tree(directory: Path) -> None:
    """Make every file and every name below ``directory`` durable."""
    for parent, _, names in os.walk(directory):
        for name in names:
            fsync_file(Path(parent, name))
        fsync_directory(Path(parent))


def _exchange(one: Path, other: Path) -> bool:
    # renameat2(RENAME_EXCHANGE) swaps two names in one step; glibc >= 2.28 on most local file systems.
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    at_fdcwd, exchange = -100, 2
    return renameat2(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), exchange) == 0


def replace_directory(temporary: Path, target: Path) -> None:
    """Put the complete directory ``temporary`` instead of ``target`` and drop the old one.

    Where the system can exchange two names in one step, ``target`` is at every moment either
    the old or the new directory; elsewhere it is absent for an instant, never mixed.
    """
    with explained(target):
        if not target.exists():
            os.rename(temporary, target)
            old = None
        elif _exchange(temporary, target):
            old = temporary
        else:
            old = _temporary(target)
            os.rename(target, old)
            os.rename(temporary, target)
        fsync_directory(target.parent)
        if old is not None:
            remove(old)


def claim_directory(temporary: Path, target: Path) -> bool:
    """Put ``temporary`` at ``target`` if nothing is there; says whether it did. Of several, one succeeds."""
    with explained(target):
        try:
            os.rename(temporary, target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        fsync_directory(target.parent)
    return True


@contextmanager
def atomic_directory(target: Path | str) -> Iterator[Path]:
    """Yield an empty directory that becomes ``target`` when the block ends without an error.

    On an error nothing of it stays and the old ``target`` is untouched. Leftovers of killed
    processes are removed on the way in. Raises ``StoreError``.
    """
    target = Path(target)
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent, target.name)
        temporary = _temporary(target)
        temporary.mkdir()
    try:
        try:
            yield temporary
        except Exception as error:
            # Only what is surely a refusal to write; a missing input of the block is its own matter.
            refused = _refusal(error)
            if refused is not None and refused.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
                raise explain_write_error(refused, target) from refused
            raise
        with explained(target):
            fsync_tree(temporary)
        replace_directory(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def cache_folder() -> Path:
    """Where a host keeps what can be had again: ``$REGFT_CACHE``, else ``regft`` below the user's cache folder."""
    given = os.environ.get("REGFT_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "regft"

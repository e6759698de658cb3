"""Temporary names that carry the machine, process id and start time of their owner.

Leftovers of dead processes can so be told from work in progress.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path

_HOST = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname())[:32] or "host"
_OWNED = re.compile(r"(?:^|\.tmp-)(?P<host>\w+)\.(?P<pid>\d+)\.(?P<start>\d+)\.[0-9a-f]{8}$", re.ASCII)
#: Processes of another machine cannot be asked whether they live; their leftovers go after a week.
REMOTE_LEFTOVER_SECONDS = 7 * 86_400.0


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


def temporary_name(target: Path) -> Path:
    """A name beside ``target``, not used before, that says for which target and which process it is."""
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

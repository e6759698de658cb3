from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from regft_core.io.files import _HOST, sweep_stale, temporary_name


def test_leftovers_of_dead_processes_are_swept_and_others_are_not(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from regft_core.io.files import temporary_name\n"
        "path = temporary_name(Path(sys.argv[1]) / 'out'); path.mkdir(); (path / 'f').write_text('x')"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    (dead,) = tmp_path.iterdir()
    alive = temporary_name(tmp_path / "out")
    alive.mkdir()
    reused = tmp_path / f".out.tmp-{_HOST}.{os.getpid()}.1.00000000"  # our id, but another start time
    reused.mkdir()
    remote = tmp_path / ".out.tmp-elsewhere.1.1.00000000"
    remote.mkdir()
    old_remote = tmp_path / ".out.tmp-elsewhere.1.1.00000001"
    old_remote.mkdir()
    os.utime(old_remote, (0, 0))
    users = tmp_path / ".out.tmp-mine"
    users.mkdir()
    other = tmp_path / dead.name.replace("out", "other")
    other.mkdir()
    expected = {dead, old_remote} | ({reused} if Path("/proc/self/stat").exists() else set())
    sweep_stale(tmp_path, "out")
    assert set(tmp_path.iterdir()) == {alive, remote, users, other, reused} - expected
    sweep_stale(tmp_path / "absent")

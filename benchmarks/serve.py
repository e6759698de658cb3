"""Load test of ``regft serve``: requests per second and waiting times with 1 to 32 clients, and what batching gives.

    regft export --method linear_probe --task cue_sentence --size 128 --seed 0
    OMP_NUM_THREADS=1 python benchmarks/serve.py exports/linear_probe-cue_sentence-128-seed-0

Each client keeps one connection open and sends one text after the other. A last line has the server in the middle of a
flood: more rows than may wait. Every answer is compared with that of ``regft predict`` on the same texts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

WORDS = ["film", "story", "the", "was", "not", "a", "slow", "bright", "actor", "scene", "and", "it", "never", "quite"]
REGFT = [sys.executable, "-m", "regft_core"]


def texts(count: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 40))) for _ in range(count)]


def client(
    port: int, rows: list[dict[str, str]], seconds: float, found: list[tuple[float, int, Any]], size: int
) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    end, place = time.monotonic() + seconds, random.randrange(len(rows))
    while time.monotonic() < end:
        sent = [(place + n) % len(rows) for n in range(size)]
        begun = time.monotonic()
        connection.request(
            "POST", "/predict", json.dumps({"rows": [rows[n] for n in sent]}), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        body = json.loads(response.read())
        found.append((time.monotonic() - begun, response.status, list(zip(sent, body.get("answers", [])))))
        place = (place + size) % len(rows)


def load(
    port: int, rows: list[dict[str, str]], clients: int, seconds: float, size: int = 1
) -> list[tuple[float, int, Any]]:
    found: list[tuple[float, int, Any]] = []
    threads = [threading.Thread(target=client, args=(port, rows, seconds, found, size)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 8, 32])
    given = parser.parse_args()
    with subprocess.Popen(
        [*REGFT, "serve", str(given.model), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rpartition(" at http://127.0.0.1:")[2].split()[0])
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/health")
        column = json.loads(connection.getresponse().read())["columns"][0]
        rows = [{column: text} for text in texts(400)]
        with tempfile.TemporaryDirectory() as folder:
            data, out = Path(folder, "rows.jsonl"), Path(folder, "out.jsonl")
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            command = [*REGFT, "predict", "--model", str(given.model), "--data", str(data), "--out", str(out)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            expected = [json.loads(line) for line in out.read_text().splitlines()]
        names = [name for name in expected[0] if name.startswith("probability_")] or ["prediction"]
        columns = ["clients", "rows a request", "answered rows per s", "median ms", "99th percentile ms"]
        columns += ["server CPU ms a row", "statuses", "largest difference to predict"]
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        load(port, rows, 2, 1)
        for clients, size in [*((count, 1) for count in given.clients), (32, 200)]:
            begun, before = time.monotonic(), cpu(server.pid)
            found = load(port, rows, clients, given.seconds, size)
            spent, used = time.monotonic() - begun, cpu(server.pid) - before
            waits = sorted(1000 * wait for wait, status, _ in found if status == 200)
            answered = [pair for _, _, pairs in found for pair in pairs]
            far = max((abs(one[name] - expected[n][name]) for n, one in answered for name in names), default=0.0)
            same = sum(one["prediction"] == expected[n]["prediction"] for n, one in answered) == len(answered)
            late = waits[int(0.99 * (len(waits) - 1))] if waits else float("nan")
            middle = statistics.median(waits) if waits else float("nan")
            counts = Counter(status for _, status, _ in found)
            cells = [clients, size, f"{len(answered) / spent:.0f}", f"{middle:.0f}", f"{late:.0f}"]
            cells += [f"{1000 * used / max(1, len(answered)):.1f}"]
            cells += [", ".join(f"{count} x {status}" for status, count in sorted(counts.items()))]
            cells += [f"{far:.0e}{'' if same else ', other answers'}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
        server.terminate()


def cpu(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()

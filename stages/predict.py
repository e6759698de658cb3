"""Answers of an exported model: to rows of a file or of standard input, and over HTTP."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import uvicorn

from regft_core import output
from regft_core.catalogue import use_project
from regft_core.data.lengths import WORTH_UNKNOWN, share
from regft_core.errors import ConfigError, DataError, ModelError
from regft_core.models.devices import visible_devices
from regft_core.names import plural
from regft_core.schema.sources import FileFormat
from regft_core.serve.answers import Counted
from regft_core.serve.http import LOCAL, Limits, application
from regft_core.serve.model import ServedModel, load_served
from regft_core.serve.predict import FORMATS, predict_file, predict_stream

from .common import FORMAT, argument, command, flag, format_of, refuse_contradictions, whole_number

#: What an exported model can answer in (models/precision.py).
PRECISIONS = ("fp32", "bf16", "int8")
#: Of the commands that answer texts with an exported model.
SERVING = (
    argument("--text", "column of the text; by default that of the training data"),
    argument("--text-pair", "column of the second text of pairs; by default that of the training data"),
    argument("--precision", "bf16 and int8 are faster, with other last digits", default="fp32", choices=PRECISIONS),
    argument("--device", "auto, cpu, mps, cuda or cuda:N", default="auto"),
)
MODEL = argument("--model", "directory that `regft export` wrote", required=True)
DATA = "file with the texts: .csv, .tsv, .jsonl or .parquet, also .gz, or .xlsx"
OUT = "file to write: .csv or .jsonl"
OVERWRITE = flag("--overwrite", "replace an output that exists")
#: What ``--data`` is for standard input.
STANDARD = "-"


def served(arguments: argparse.Namespace) -> ServedModel:
    """Return the exported model, as ``SERVING`` says; in a project's folder its kinds of task are known.

    Raises ModelError for a device that is not there.
    """
    if (Path.cwd() / "params.yaml").is_file():
        use_project(Path.cwd())
    try:
        device = visible_devices(arguments.device)[0]
    except ConfigError as error:
        text = f"--device {arguments.device}: not available on this machine\n    -> {error.problems[0].hint}"
        raise ModelError("device-missing", text) from error
    model = load_served(Path(arguments.model), device, arguments.precision)
    return model.reading(arguments.text, arguments.text_pair)


@command(
    MODEL,
    argument("--data", f"{DATA}; - for standard input", required=True),
    argument("--out", f"{OUT}; not with --data -"),
    argument("--format", "of standard input: an object, fields or a text a line (default: jsonl)", choices=FORMATS),
    *SERVING,
    *FORMAT,
    OVERWRITE,
    argument("--keep", "column to copy; may be repeated", action="append"),
)
def predict(root: Path, arguments: argparse.Namespace) -> None:
    r"""Predict new texts, of a file or of standard input.

    Writes one line per row, in the order of the file. With --data - it reads
    standard input and writes each answer at once, as a JSON line.

    examples
      regft predict --model exports/lp_ft-film_polarity-200-seed-0 \
        --data new.csv --out predictions.csv
      echo "a fine film" | regft predict --data - --format text \
        --model exports/lp_ft-film_polarity-200-seed-0

    next: regft pick, which finds the rows that are worth labelling
    """
    standard, other = arguments.data == STANDARD, "has no use with --data -"
    refuse_contradictions(
        [
            (standard and arguments.out, f"--out {other}, which answers to standard output"),
            (standard and arguments.overwrite, f"--overwrite {other}, which writes no file"),
            (standard and arguments.encoding, f"--encoding {other}, which is UTF-8"),
            (standard and arguments.sheet, f"--sheet {other}, which has none"),
            (standard and arguments.delimiter and arguments.format not in ("csv", "tsv"), f"--delimiter {other} alone"),
            (not standard and not arguments.out, "--out is missing: a file's predictions go into a file"),
            (not standard and arguments.format, "--format is for --data -: a file's name tells its format"),
        ],
        "regft predict --model FOLDER --data FILE --out FILE, or --model FOLDER --data - --format csv --delimiter MARK",
    )
    model, how = served(arguments), format_of(arguments)
    if standard:
        _say(model, _stream(model, arguments.format or FORMATS[0], arguments.keep, how), sys.stderr)
        return
    data, out = Path(arguments.data), Path(arguments.out)
    counted = predict_file(model, data, out, how, keep=arguments.keep, overwrite=arguments.overwrite)
    before = f", {counted.resumed} of them by an earlier call" if counted.resumed else ""
    print(f"{arguments.out}: {plural(counted.rows, 'row')} in {counted.seconds:.1f} s{before}")
    _say(model, counted, sys.stdout)


def _stream(model: ServedModel, form: str, keep: Sequence[str], how: FileFormat) -> Counted:
    """Answer standard input. A reader that has enough (``| head``) ends it without an error."""
    try:
        return predict_stream(model, sys.stdin.buffer, output.data(), form, keep=keep, how=how)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at its end
        return Counted()
    except KeyboardInterrupt:
        print("regft: interrupted; the rows so far are answered", file=sys.stderr)
        sys.exit(130)


def _say(model: ServedModel, counted: Counted, out: IO[str]) -> None:

    def part(count: int) -> str:
        return f"{plural(count, 'row')} ({share(count / counted.rows)})"

    warnings = []
    if counted.cut:
        windows = f"{model.served.windows} windows of " if model.served.windows > 1 else ""
        read = f"only the first {windows}{model.served.max_length} tokens of {part(counted.cut)} were read"
        warnings.append(f"{read}, the length that the model was trained with")
    if counted.unknown > WORTH_UNKNOWN * counted.tokens:
        tokens = f"tokens for unknown words are {share(counted.unknown / counted.tokens)}"
        warnings.append(f"the model cannot read all of the texts: {tokens}")
    if (abstain := model.served.abstain) is not None and counted.abstained:
        right = f"confidence below {abstain.threshold:.3f}, guaranteeing {100 * abstain.accuracy:g}% right answers"
        print(f"{part(counted.abstained)} not answered: {right}", file=out)
    if empty := counted.empty - counted.unreadable:
        warnings.append(f"no prediction for {plural(empty, 'row')} without a text")
    if counted.unreadable:
        rows, shown = plural(counted.unreadable, "row"), "; ".join(counted.unreadable_rows)
        warnings.append(f"no prediction for {rows} with a text that cannot be read: {shown}")
    if counted.words_for_none:
        rows = plural(counted.words_for_none, "row")
        warnings.append(f"a text of {rows} is nan, None, NULL or N/A, perhaps a missing one")
    for text in warnings:
        print(f"warning: {text}", file=sys.stderr)


@command(
    MODEL,
    argument("--data", DATA, required=True),
    argument("--out", OUT, required=True),
    argument("--rows", "how many rows to pick", default=50, type=whole_number()),
    *SERVING,
    *FORMAT,
    OVERWRITE,
)
def pick(root: Path, arguments: argparse.Namespace) -> None:
    r"""Pick the unlabelled rows that are worth labelling next.

    Writes rows that the model is unsure of and that differ from each other, the
    most useful one first.

    examples
      regft pick --model exports/lp_ft-film_polarity-200-seed-0 \
        --data unlabelled.csv --rows 50 --out to_label.csv

    next: label the rows, add them to your file, and run `regft fit` again
    """
    from regft_core.serve.pick import pick_file

    files = Path(arguments.data), Path(arguments.out)
    picked = pick_file(served(arguments), *files, arguments.rows, format_of(arguments), overwrite=arguments.overwrite)
    print(f"{arguments.out}: {plural(picked.rows, 'row')} of {picked.read} to label next")
    if picked.empty or picked.repeated:
        print(f"left out: {picked.empty} without a text, {picked.repeated} with the text of an earlier row")


#: Connections at a time; further ones get 503.
CONNECTIONS = 512
limits = Limits()


@command(
    argument("model", "directory that `regft export` wrote"),
    argument("--host", "address to listen on", default="127.0.0.1"),
    argument("--port", "port to listen on; 0 for any that is free", default=8000, type=int),
    argument("--rows", "most rows of one request", default=limits.rows, type=whole_number()),
    argument("--bytes", "largest body of one request", default=limits.bytes, type=whole_number()),
    argument("--seconds", "longest time for one request", default=int(limits.seconds), type=whole_number()),
    *SERVING,
)
def serve(root: Path, arguments: argparse.Namespace) -> None:
    r"""Answer texts over HTTP with an exported model.

    Serves until it is interrupted. Requests that arrive together share batches;
    the answers are those of `regft predict`. It listens on this machine only;
    another --host has neither password nor encryption, and a warning says so.

    examples
      regft serve exports/lp_ft-film_polarity-200-seed-0

    next: curl localhost:8000/predict -H 'Content-Type: application/json' \
            -d '{"rows": [{"text": "a fine film"}]}'
    """
    opened = _listen(arguments.host, arguments.port)
    with opened:
        model = served(arguments)
        limits = Limits(arguments.seconds, arguments.bytes, arguments.rows)
        local = _is_local(arguments.host)
        app = application(model, limits, LOCAL if local else ("*",))
        quiet: dict[str, Any] = {"log_level": "warning", "server_header": False, "use_colors": False}
        config = uvicorn.Config(app, limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=5, **quiet)
        if not local:
            warning = "anyone who reaches it may ask: no password, no encryption; put a proxy with both before it"
            print(f"warning: --host {arguments.host}: {warning}", file=sys.stderr)
        host, port = opened.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"serving {arguments.model} at http://{shown}:{port} (POST /predict, GET /health)", flush=True)
        with suppress(KeyboardInterrupt):  # the ordinary end
            uvicorn.Server(config).run(sockets=[opened])


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises DataError for an address in use, or one that this machine has not."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"--host {host} --port {port}: cannot listen there ({reason})"
        raise DataError("cannot-listen", f"{message}\n    -> another --port") from error


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

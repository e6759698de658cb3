"""A Hugging Face hub on this machine: repositories of files at commits, over HTTP, for the real client libraries."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

#: Other names of the newest commit.
BRANCHES = ("main",)


@dataclass
class Repository:
    """Files at one commit; ``kind`` is models or datasets."""

    kind: str
    id: str
    commit: str
    files: dict[str, bytes]


@dataclass
class Hub:
    """Files that are served, and requests that came; ``broken_after`` cuts files of models off after as many bytes.

    ``made``: names of repositories that were made; None where nobody may.
    """

    repositories: list[Repository]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    broken_after: int | None = None
    made: list[str] | None = None

    def find(self, kind: str, name: str) -> Repository | None:
        return next((one for one in self.repositories if (one.kind, one.id) == (kind, name)), None)


@contextmanager
def serving(*repositories: Repository) -> Iterator[Hub]:
    """A hub that answers while the block runs; ``HF_ENDPOINT`` must be its ``url``."""
    hub = Hub(list(repositories))

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        self.served.asked.append(f"{self.command} {self.path}")

    def do_GET(self) -> None:
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts == ["api", "validate-yaml"]:
            self._json({"errors": [], "warnings": []})
            return
        if parts == ["api", "repos", "create"]:
            name, made = json.loads(self._body)["name"], self.served.made
            if made is None:
                self._error(401, "Unauthorized")
                return
            made.append(name)
            self.served.repositories.append(Repository("models", f"someone/{name}", "0" * 40, {}))
            self._json({"url": f"{self.served.url}/someone/{name}"})
            return
        if parts[0] == "api" and parts[1] in ("models", "datasets"):
            self._api(parts[1], "/".join(parts[2:4]), parts[4:])
            return
        kind = "datasets" if parts[0] == "datasets" else "models"
        parts = parts[1:] if kind == "datasets" else parts
        if len(parts) > 4 and parts[2] == "resolve":
            found = self._at(kind, "/".join(parts[:2]), parts[3])
            if found is not None:
                self._file(found, "/".join(parts[4:]), self.served.broken_after if kind == "models" else None)
            return
        self._error(404, "EntryNotFound")

    do_HEAD = do_POST = do_GET

    def _at(self, kind: str, name: str, revision: str) -> Repository | None:
        found = self.served.find(kind, name)
        if found is None:
            self._error(404, "RepoNotFound")
        elif revision not in (found.commit, *BRANCHES):
            self._error(404, "RevisionNotFound")
        else:
            return found
        return None

    def _api(self, kind: str, name: str, rest: list[str]) -> None:
        found = self._at(kind, name, rest[1] if len(rest) > 1 else "main")
        if found is None:
            return
        if not rest or rest[0] == "revision":
            siblings = [{"rfilename": path} for path in found.files]
            known = {"id": name, "sha": found.commit, "siblings": siblings, "private": False, "tags": []}
            self._json({**known, "downloads": 0, "likes": 0, "gated": False, "disabled": False})
        elif rest[0] == "tree":
            folder = "/".join(rest[2:])
            under = {p: c for p, c in found.files.items() if p.startswith(f"{folder}/" if folder else "")}
            if folder and not under:
                self._error(404, "EntryNotFound")
                return
            self._json([_entry(path, content) for path, content in under.items()])
        elif rest[0] == "paths-info":
            text = self._body.decode()
            wanted = json.loads(text)["paths"] if text.startswith("{") else []
            self._json([_entry(path, found.files[path]) for path in wanted if path in found.files])
        elif rest[0] == "preupload":
            files = json.loads(self._body)["files"]
            plain = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]
            self._json({"files": plain})
        elif rest[0] == "commit":
            lines = map(json.loads, self._body.splitlines())
            added = [line["value"] for line in lines if line["key"] == "file"]
            found.files |= {one["path"]: base64.b64decode(one["content"]) for one in added}
            commit = f"{self.served.url}/{name}/commit/{'1' * 40}"
            self._json({"commitUrl": commit, "commitOid": "1" * 40, "success": True})
        else:
            self._error(404, "EntryNotFound")

    def _file(self, found: Repository, path: str, cut: int | None) -> None:
        content = found.files.get(path)
        if content is None:
            self._error(404, "EntryNotFound", found.commit)
            return
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        headers = {"X-Repo-Commit": found.commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        headers |= {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if asked else {}
        self._send(206 if asked else 200, content[start:], headers | {"Accept-Ranges": "bytes"}, cut)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, commit: str | None = None) -> None:
        self._send(status, b"", {"X-Error-Code": code} | ({"X-Repo-Commit": commit} if commit else {}))

    def _send(self, status: int, body: bytes, headers: dict[str, str], cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
            self.close_connection |= cut is not None and cut < len(body)


def _entry(path: str, content: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": path, "size": len(content), "oid": oid, "lfs": None}

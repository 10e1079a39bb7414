"""Real data for those who have it, and a mirror with every vice for those who test downloads."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import pytest

from onegate.lab import data
from onegate.lab.data.source_files import data_folders

Loaded = TypeVar("Loaded")


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session-cache")


def _load(loader: Callable[..., Loaded], cache: Path) -> Loaded:
    with pytest.MonkeyPatch.context() as patch:
        # Files may come from the user's folders; arrays are parsed anew.
        patch.setenv("ONEGATE_DATA", str(data_folders()[0]))
        patch.setenv("XDG_CACHE_HOME", str(cache))
        try:
            return loader(download=False)
        except data.MissingDataError as error:
            pytest.skip(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def real_mnist(session_cache: Path) -> data.Mnist:
    return _load(data.mnist, session_cache)


@pytest.fixture(scope="session")
def real_imdb(session_cache: Path) -> data.Imdb:
    return _load(data.imdb, session_cache)


@pytest.fixture(scope="session")
def real_ptb(session_cache: Path) -> data.PennTreebank:
    return _load(data.ptb, session_cache)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of this package; the user's own is out of reach."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONEGATE_DATA", raising=False)
    return tmp_path / "cache" / "onegate"


@pytest.fixture
def data_folder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that ONEGATE_DATA names."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("ONEGATE_DATA", str(folder))
    return folder


class Mirror(ThreadingHTTPServer):
    """Serves `content` at any path that begins with /good; other paths have a fault each."""

    content = bytes(range(256)) * 200
    daemon_threads = False  # they are joined at the end: a test that leaves one behind fails

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, str | None]] = []

    def url(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{behaviour}"


class _Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        # The client may have had enough.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            getattr(self, f"_{self.path.strip('/')}")(wanted)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _send(self, body: bytes, length: int | None = None, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def _good(self, wanted: str | None) -> None:
        content = self.server.content
        start = int(re.findall(r"\d+", wanted)[0]) if wanted else 0
        if start >= len(content):
            self._send(b"", status=416)
        else:
            self._send(content[start:], status=206 if wanted else 200)

    def _without_ranges(self, wanted: str | None) -> None:
        self._send(self.server.content)

    def _absent(self, wanted: str | None) -> None:
        self._send(b"nothing here", status=404)

    def _wrong(self, wanted: str | None) -> None:
        self._send(self.server.content[::-1])

    def _cut(self, wanted: str | None) -> None:
        self._send(self.server.content[:10_240], length=len(self.server.content))

    def _silent(self, wanted: str | None) -> None:
        time.sleep(1.9)

    def _dripping(self, wanted: str | None) -> None:
        self._send(b"", length=len(self.server.content))
        until = time.monotonic() + 1.9
        while time.monotonic() < until:
            self.wfile.write(b"drop" * 32)
            time.sleep(0.2)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()

"""Headless Chromium for tests of pages, driven over its DevTools pipe.

    with Browser() as browser:
        page = browser.open(path, width=390, dark=True)
        page.evaluate("document.title")
        page.press("ArrowRight")
        page.screenshot(folder / "page.png")
        assert page.problems == []

The pipe needs neither a port nor a package: commands and answers are JSON, ended by a zero byte,
on the file descriptors 3 and 4 of the browser.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Moves the pipe's ends to the descriptors that the browser looks at, and becomes the browser.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD_CLOEXEC, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
# Long enough for a busy machine; a page that needs more is broken.
_PATIENCE = 60.0
# Key -> code, key number, text that it types.
_KEYS: Mapping[str, tuple[str, int, str]] = {
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "PageUp": ("PageUp", 33, ""),
    "PageDown": ("PageDown", 34, ""),
    "Tab": ("Tab", 9, ""),
    "Escape": ("Escape", 27, ""),
    "Enter": ("Enter", 13, "\r"),
    " ": ("Space", 32, " "),
}


# Text of others. Each of the first would run as a script where it is taken for markup: the page's
# `attacked` tells. The others break what takes them for mathtext, a path, a file or a line.
ATTACKS = (
    "<script>window.attacked = 1</script>",
    "</script><script>window.attacked = 1</script>",
    "<!--<script>window.attacked = 1</script>",
    "</title></style><script>window.attacked = 1</script>",
    '"><img src=x onerror="window.attacked = 1">',
    "<img src=x onerror=window.attacked=1>",
    "'><svg onload='window.attacked = 1'>",
    'x"><script>window.attacked = 1</script><g id="',
    "javascript:window.attacked=1",
    "&lt;script&gt;",
    "$\\frac{",
    "../../up",
    "/etc/up",
    "a\nb\tc",
    "a\x1b[2Jb",
    "\u202eabc",
    "\udcff",
    "-rf",
    "\u540d\u524d",
    "long" * 100,
)


class BrowserError(RuntimeError):
    """The browser or a script in a page failed."""


def find_chromium() -> str | None:
    """The browser's path, None if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """A browser of its own, with an empty profile, for the length of a `with` block."""

    def __init__(self) -> None:
        self._resources = ExitStack()
        self._pages: dict[str, Page] = {}
        self._last_id = 0
        self._received = b""

    def __enter__(self) -> Self:
        program = find_chromium()
        if program is None:
            raise BrowserError(f"none of {', '.join(_NAMES)} was found")
        try:
            self._start(program)
        except BaseException:
            self._resources.close()
            raise
        return self

    def _start(self, program: str) -> None:
        # The browser may still write while it ends.
        profile = self._resources.enter_context(
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        )
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        for end in (self._out, self._in):
            self._resources.callback(os.close, end)
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _LAUNCH, str(theirs_in), str(theirs_out),
             program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._resources.callback(self._end)
        os.close(theirs_in)
        os.close(theirs_out)
        self.call("Browser.getVersion")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._resources.close()

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Opens a file and waits until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.prefer(dark=dark)
        page.load(path.resolve().as_uri())
        return page

    def call(self, method: str, session: str | None = None, /, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its answer; events on the way go to their pages."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        try:
            os.write(self._out, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise BrowserError(f"the browser ended before {method}") from None
        answer = self._read_until(lambda m: m.get("id") == self._last_id, method)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def wait(self, session: str, event: str) -> None:
        """Waits for an event of a page that has not come yet."""
        self._read_until(lambda m: (m.get("sessionId"), m.get("method")) == (session, event), event)

    def _read_until(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            message = self._next_message(deadline, what)
            if "method" in message and message.get("sessionId") in self._pages:
                self._pages[message["sessionId"]].note(message["method"], message["params"])
            if wanted(message):
                return message

    def _next_message(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._received:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._in], [], [], left)[0]:
                raise BrowserError(f"no answer to {what} within {_PATIENCE:.0f} s")
            chunk = os.read(self._in, 1 << 16)
            if not chunk:
                raise BrowserError(f"the browser ended before it answered to {what}")
            self._received += chunk
        text, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(text))


class Page:
    """An open page.

    messages: what it wrote to the console. problems: errors and warnings among them, scripts that
        failed, requests that failed. requests: every address that it asked for.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.messages: list[str] = []
        self.problems: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, to this page."""
        return self._browser.call(method, self._session, **parameters)

    def load(self, address: str) -> None:
        """Goes to an address and waits until everything in it is loaded."""
        answer = self.call("Page.navigate", url=address)
        if "errorText" in answer:
            raise BrowserError(f"{address}: {answer['errorText']}")
        if self.evaluate("document.readyState") != "complete":
            self._browser.wait(self._session, "Page.loadEventFired")

    def resize(self, width: int, height: int = 900) -> None:
        """Sets the size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def prefer(self, *, dark: bool) -> None:
        """Sets what prefers-color-scheme says."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {_described(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Presses and releases a key: one of the named ones, or a character."""
        code, number, text = _KEYS.get(key) or (f"Key{key.upper()}", ord(key.upper()), key)
        event = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text,
                  **event)  # fmt: skip
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def screenshot(self, path: Path | None = None, *, whole: bool = True) -> bytes:
        """The page as PNG, all of it or what the window shows; also written to `path`."""
        self.call("Page.bringToFront")  # a page behind another one may not be painted for long
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                           **({"clip": self._whole()} if whole else {}))  # fmt: skip
        content = base64.b64decode(answer["data"])
        if path:
            path.write_bytes(content)
        return content

    def _whole(self) -> dict[str, float]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def note(self, event: str, content: Mapping[str, Any]) -> None:
        """Keeps what the page tells of itself."""
        if event == "Runtime.consoleAPICalled":
            text = " ".join(_plain(argument) for argument in content["args"])
            self.messages.append(f"{content['type']}: {text}")
            if content["type"] in ("error", "warning", "assert"):
                self.problems.append(self.messages[-1])
        elif event == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {_described(content['exceptionDetails'])}")
        elif event == "Log.entryAdded":
            entry = content["entry"]
            self.problems.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
        elif event == "Network.loadingFailed":
            self.problems.append(f"request failed: {content['errorText']}")
        elif event == "Network.requestWillBeSent":
            self.requests.append(content["request"]["url"])


def _plain(argument: Mapping[str, Any]) -> str:
    return str(argument.get("value", argument.get("description", "")))


def _described(details: Mapping[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details["text"])

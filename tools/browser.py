"""A Chromium that tests and tools drive: pages are opened, keys pressed, texts read, pictures taken.

It speaks the browser's own protocol over two pipes (``--remote-debugging-pipe``), so it needs no package and
no port. `find` says which browser is used.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VARIABLE = "CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ANSWER_WAIT_S = 60.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
)
_WITH_PIPES = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
_WITH_PIPES += "os.execv(sys.argv[3], sys.argv[3:])"
"""The browser reads its commands from file 3 and writes to file 4."""


class BrowserFailed(Exception):
    """The browser ended, did not answer in time, or refused a command."""


def find() -> str:
    """Return the program: that of the variable `VARIABLE`, else an installed one; "" if there is none."""
    if named := os.environ.get(VARIABLE, ""):
        return named
    return next((found for name in _NAMES if (found := shutil.which(name))), "")


@contextmanager
def opened(program: str, profile: Path) -> Iterator[Page]:
    """Start the browser with one empty page, and end it. ``profile``: an empty directory of its own."""
    ours = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for pair in (os.pipe(), os.pipe()) for number in pair]
    commands_out, commands_in, answers_out, answers_in = ours
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _WITH_PIPES, str(commands_out), str(answers_in)),
            *(program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"),
        ],
        pass_fds=(commands_out, answers_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_out)
    os.close(answers_in)
    try:
        yield Page(commands_in, answers_out)
    finally:
        process.terminate()
        try:
            process.wait(_ANSWER_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(commands_in)
        os.close(answers_out)


class Page:
    """A page, and what the browser reported about it. ``urls``: of all requests; ``size_bytes``: of all
    answers; ``problems``: errors of scripts, and what the page's policy forbade."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._left = b""
        self._number = 0
        self._session = ""
        self.urls: list[str] = []
        self.size_bytes = 0.0
        self.problems: list[str] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> Mapping[str, Any]:
        """Return the browser's answer. Raises `BrowserFailed`."""
        self._number += 1
        sent: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            sent["sessionId"] = self._session
        content = json.dumps(sent).encode() + b"\0"
        while content:
            content = content[os.write(self._commands, content) :]
        deadline_s = time.monotonic() + _ANSWER_WAIT_S
        while True:
            message = self._message(deadline_s)
            if message.get("id") != self._number:
                self._event(message)
            elif "error" in message:
                raise BrowserFailed(f"{method}: {message['error']['message']}")
            else:
                result: Mapping[str, Any] = message["result"]
                return result

    def _message(self, deadline_s: float) -> Mapping[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise BrowserFailed(f"the browser did not answer within {_ANSWER_WAIT_S:g} s")
            if not (more := os.read(self._answers, 1 << 20)):
                raise BrowserFailed("the browser ended")
            self._left += more
        content, _, self._left = self._left.partition(b"\0")
        message: Mapping[str, Any] = json.loads(content)
        return message

    def _event(self, message: Mapping[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.urls.append(params["request"]["url"])
            case "Network.loadingFinished":
                self.size_bytes += params["encodedDataLength"]
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                if params["entry"]["source"] != "network":  # an answer with a status of its own
                    self.problems.append(params["entry"]["text"])

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """Return the value of a JavaScript expression, awaited. Raises `BrowserFailed` if it throws."""
        found = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise BrowserFailed(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Return when a JavaScript condition holds. Raises `BrowserFailed` with what the page shows then."""
        deadline_s = time.monotonic() + _ANSWER_WAIT_S
        while not self.value(f"Boolean({condition})"):
            if time.monotonic() > deadline_s:
                raise BrowserFailed(f"{condition} does not hold: {self.text()}")
            self.value("new Promise((done) => setTimeout(done, 20))")

    def wait_for_text(self, text: str) -> None:
        """Return when the page shows the text. Raises `BrowserFailed`."""
        self.wait_for(f"document.body && document.body.innerText.includes({json.dumps(text)})")

    def text(self) -> str:
        shown: str = self.value("document.body ? document.body.innerText : ''")
        return shown

    def write(self, text: str) -> None:
        """Type a text where the focus is."""
        self.command("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press and release a key by its name, such as ``Tab``."""
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.command("Input.dispatchKeyEvent", type="keyDown", **common, **more)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def use_scheme(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)

    def picture(self, width: int, height: int) -> bytes:
        """Return a PNG of the page in a window of that size."""
        self.resize(width, height)
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])

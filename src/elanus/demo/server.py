"""The demo's own server: ``elanus serve`` as a child process on free ports."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from elanus.server.announce import find

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
_POLL_S = 0.02


class ServerFailed(Exception):
    """The server did not start or did not stop. The text contains the end of its output."""


class DemoServer:
    """Starts and stops the server on one data directory. As a context manager it never outlives the demo."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DemoServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.stop()

    def start(self) -> str:
        """Start and wait until it answers; return the address for the client."""
        command = [sys.executable, "-m", "elanus", "serve", "--data-dir", str(self._data_dir)]
        command += ["--port", "0", "--set", "metrics.port=0", "--set", "http.port=0"]
        self._data_dir.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("ab") as log:
            process = self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self._process = None
                raise ServerFailed(
                    f"the server ended with exit code {process.returncode}:\n{self._log_end()}"
                )
            announced = find(self._data_dir)
            # an announcement that a killed server left behind has another process id
            if announced and announced.pid == process.pid:
                return f"http://{announced.address}"
            time.sleep(_POLL_S)
        raise ServerFailed(f"the server does not answer after {START_TIMEOUT_S} s:\n{self._log_end()}")

    def stop(self) -> None:
        """Ask it to stop and wait; kill it if it does not stop."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(
                f"the server had not stopped after {STOP_TIMEOUT_S} s and was killed"
            ) from None

    @property
    def _log_file(self) -> Path:
        # next to the data directory, which belongs to the server
        return self._data_dir.with_name(self._data_dir.name + ".log")

    def _log_end(self) -> str:
        return self._log_file.read_text(errors="replace")[-3000:]

"""A network namespace with nothing but loopback, for a server that would listen on every interface.

A process that only sleeps holds the namespace open; servers and clients enter it one by one. Without root the
namespace is made inside a user namespace of our own.
"""

from __future__ import annotations

import os
import subprocess

ENTER_LIMIT_S = 10.0


class NetworkNamespace:
    """A namespace that lives until `close`.

    Raises:
        RuntimeError: this machine does not let us make one.
    """

    def __init__(self) -> None:
        mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
        self._user = bool(mapped)
        self._holder = subprocess.Popen(
            ["unshare", *mapped, "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline().strip() != "up":
            self.close()
            raise RuntimeError("cannot make a network namespace here: `unshare --net` and `ip` are needed")

    def inside(self, command: list[str]) -> list[str]:
        """Arguments that run `command` in the namespace, in the process that starts them."""
        user = ["--user", "--preserve-credentials"] if self._user else []
        return ["nsenter", f"--target={self._holder.pid}", *user, "--net", *command]

    def close(self) -> None:
        """End the holder; the namespace goes with its last process."""
        self._holder.kill()
        self._holder.wait(timeout=ENTER_LIMIT_S)
        if self._holder.stdout is not None:
            self._holder.stdout.close()

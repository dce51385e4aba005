"""How the gRPC library is set up in a server's processes. It reads its settings once, when it is imported.

**No thread between the socket and the reader of the queue.** By default the library reads sockets in threads
of its own, which wake the thread that waits for the completion queue: three threads wake up for a small call,
and where waking a thread is slow that costs more than the call. Without its experiment
``event_engine_listener`` it polls a server's sockets in the thread that reads the queue, as it did before it
had these threads. The serving loop answers short calls in that thread: so no other wakes up.

**No handlers at fork.** Starting Spark's JVM forks a process whose gRPC threads run. gRPC's fork handlers
then start a thread in the child, which may crash before it becomes the JVM (grpc/grpc#43055). Nothing here
forks to go on in Python, so the handlers are not needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
_EXPERIMENTS = "GRPC_EXPERIMENTS"
_OWN_THREADS = "event_engine_listener"


def library_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set. Variables that the environment sets are left as they are."""
    settings = {} if _FORK_SUPPORT in environment else {_FORK_SUPPORT: "0"}
    experiments = [name for name in environment.get(_EXPERIMENTS, "").split(",") if name]
    if _OWN_THREADS not in (name.removeprefix("-") for name in experiments):
        settings[_EXPERIMENTS] = ",".join((*experiments, f"-{_OWN_THREADS}"))
    return settings


def set_up_library() -> None:
    """Set them for this process and those that it starts. Call it before anything imports ``grpc``."""
    os.environ.update(library_settings(os.environ))

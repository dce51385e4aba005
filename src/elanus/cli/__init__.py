"""The command line. `main` is the entry point of ``elanus``; the commands are in `elanus.cli.app`."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command that ``sys.argv`` names; ends the process."""
    # Starting Spark's JVM forks a process whose gRPC threads run. gRPC's fork handlers then start a thread in
    # the child, which may crash before it becomes the JVM (grpc/grpc#43055). Nothing here forks to go on in
    # Python, so the handlers are not needed. gRPC reads this once, when it is imported.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from elanus.cli.app import app

    app()

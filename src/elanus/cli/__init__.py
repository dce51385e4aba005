"""The command line. `main` is the entry point of ``elanus``; the commands are in `elanus.cli.app`."""

from __future__ import annotations

import os
import sys

from elanus.rpc.library_settings import set_up_library

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as shells count it."""


def main() -> None:
    """Run the command that ``sys.argv`` names; ends the process."""
    try:
        set_up_library()
        # pydantic would read the metadata of every installed package for its plugins: 10 ms of each start
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        from elanus.cli.app import app

        app()
    except KeyboardInterrupt:  # while the modules are loaded: a command that runs answers Ctrl-C itself
        sys.exit(INTERRUPTED)

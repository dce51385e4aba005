"""The command line. `main` is the entry point of ``elanus``; the commands are in `elanus.cli.app`."""

from __future__ import annotations

import os

from elanus.rpc.library_settings import set_up_library


def main() -> None:
    """Run the command that ``sys.argv`` names; ends the process."""
    set_up_library()
    # pydantic would read the metadata of every installed package for its plugins: 10 ms of each start
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from elanus.cli.app import app

    app()

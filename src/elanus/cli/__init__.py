"""The command line. `main` is the entry point of ``elanus``; the commands are in `elanus.cli.app`."""

from __future__ import annotations

from elanus.rpc.library_settings import set_up_library


def main() -> None:
    """Run the command that ``sys.argv`` names; ends the process."""
    set_up_library()
    from elanus.cli.app import app

    app()

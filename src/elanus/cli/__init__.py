"""The command line. `main` is the entry point of ``elanus``; the commands are in `elanus.cli.app`."""

from __future__ import annotations


def main() -> None:
    """Run the command that ``sys.argv`` names; ends the process."""
    from elanus.cli.app import app

    app()

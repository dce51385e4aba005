"""The pages of ``docs/`` that are made from the code: commands, settings, metrics.

`make docs` writes them, and a test compares them with what stands in the repository.
"""

from __future__ import annotations

from collections.abc import Iterator

import typer.main

from elanus import metrics
from elanus.cli.app import app
from elanus.server import settings_page


def pages() -> dict[str, str]:
    """File name → text."""
    return {
        "cli.md": "".join(_commands()),
        "configuration.md": settings_page.markdown(),
        "metrics.md": metrics.markdown(),
    }


def _commands() -> Iterator[str]:
    group = typer.main.get_group(app)
    yield "# Commands\n\n"
    yield "<!-- Written by `make docs` from `src/elanus/cli/app.py`: edit that file, not this one. -->\n\n"
    yield f"{group.help}\n\n"
    yield "Exit codes: 0 done, 1 failed, 2 misused (a wrong option, argument or setting).\n"
    for name, command in group.commands.items():
        if command.hidden:
            continue
        yield f"\n## elanus {name}\n\n{command.help}\n\n"
        for parameter in command.params:
            metavar = f" {parameter.metavar}" if parameter.metavar else ""
            yield f"- `{parameter.opts[0]}{metavar}`: {getattr(parameter, 'help', '')}\n"

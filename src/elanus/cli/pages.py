"""The pages of ``docs/`` that are generated from the code: commands, settings, metrics, endpoints, rights.

`make docs` writes them, and a test compares them with the files in the repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main
from typer.core import TyperGroup

from elanus import metrics
from elanus.cli.app import app
from elanus.proxy.rest import page
from elanus.server import access_page, doctor, settings_page


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {
        "access-matrix.md": access_page.markdown(),
        "cli.md": "".join(_commands()),
        "doctor.md": doctor.markdown(),
        "configuration.md": settings_page.markdown(),
        "metrics.md": metrics.markdown(),
        "rest.md": page.markdown(),
    }


def _commands() -> Iterator[str]:
    group = typer.main.get_group(app)
    yield "# Commands\n\n"
    yield "<!-- Written by `make docs` from `src/elanus/cli`: edit the commands there, not this page. -->\n\n"
    yield f"{group.help}\n\n"
    yield "Exit codes: 0 done, 1 failed, 2 misused (a wrong option, argument or setting), "
    yield "3 `elanus doctor`, `elanus verify` or `elanus backup --verify` found something.\n"
    for name, command in group.commands.items():
        yield from _command(f"elanus {name}", command)


def _command(name: str, command: Any) -> Iterator[str]:
    """Document a command and its subcommands."""
    yield f"\n## {name}\n\n{command.help}\n\n"
    for parameter in command.params:
        metavar = f" {parameter.metavar}" if parameter.metavar else ""
        yield f"- `{parameter.opts[0]}{metavar}`: {getattr(parameter, 'help', '')}\n"
    if isinstance(command, TyperGroup):
        for below, child in command.commands.items():
            yield from _command(f"{name} {below}", child)

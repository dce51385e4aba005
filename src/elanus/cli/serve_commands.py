"""The commands that run a server, ``elanus serve`` and ``elanus run``, and those with which it starts others.

A server imports a thousand modules, so these are imported by `quick_imports`, and only when a command runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elanus.cli.options import EXIT_FAILED, Config, DataDir, Set, effective_settings, fail

if TYPE_CHECKING:
    from elanus.server.settings import Settings

Program = Callable[["Settings"], int]
"""Runs until it is interrupted, and returns the exit code."""


def serve(
    data_dir: DataDir = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on (setting proxy.host).", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port to listen on (setting proxy.port).", show_default=False)
    ] = None,
    config: Config = None,
    assignments: Set = None,
) -> None:
    """Run the standalone server until it is interrupted."""
    named = {"data_dir": data_dir, "proxy.host": host, "proxy.port": port}

    def program() -> Program:
        from elanus.server.standalone import serve

        return serve

    _run_until_interrupted(program, config, named, assignments)


def run(
    roles: Annotated[
        list[str],
        typer.Argument(
            help="One or more of rootcoord, datacoord, indexcoord, querycoord, querynode, proxy; or datanode."
        ),
    ],
    data_dir: DataDir = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="The address on which a proxy listens for clients (setting proxy.host).", show_default=False
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="The port on which a proxy listens for clients (setting proxy.port).", show_default=False
        ),
    ] = None,
    config: Config = None,
    assignments: Set = None,
) -> None:
    """Run roles of a cluster in this process until it is interrupted (docs/cluster.md)."""
    named = {"data_dir": data_dir, "proxy.host": host, "proxy.port": port}

    def program() -> Program:
        from elanus.server.cluster.run import run

        return lambda settings: run(settings, tuple(roles))

    _run_until_interrupted(program, config, named, assignments)


def settings(data_dir: DataDir = None, config: Config = None, assignments: Set = None) -> None:
    """Print the settings in effect, as a YAML file that --config takes."""
    effective = effective_settings(config, {"data_dir": data_dir}, assignments)
    from elanus.server.settings_page import as_yaml

    typer.echo(as_yaml(effective), nl=False)


def pipeline(
    number: Annotated[str, typer.Argument(help="The number of the socket to the process that starts it.")],
) -> None:
    """Run the pipeline process. The server starts it itself."""
    from elanus.server.pipeline_process import run

    run(number)


def serving(
    online: Annotated[str, typer.Option(help="The address of the coordinators.")],
    front: Annotated[str, typer.Option(help="Where calls are passed on to.")],
    address: Annotated[str, typer.Option(help="Where this process is to answer.")],
    number: Annotated[int, typer.Option(help="Its number.")],
) -> None:
    """Run a serving process, with the settings on standard input. The server starts it itself."""
    from elanus.cli.quick_imports import quick_imports

    with quick_imports():
        from elanus.storage.without_pandas import keep_pandas_out

        keep_pandas_out()
        from elanus.server.serving.process import run

    run(online, front, address, number)


def _run_until_interrupted(
    program_of: Callable[[], Program],
    config: Path | None,
    named: Mapping[str, object],
    assignments: list[str] | None,
) -> None:
    """Run a server, and end this process with its exit code. ``program_of`` imports what it needs."""
    from elanus.cli.quick_imports import quick_imports

    with quick_imports():
        settings = effective_settings(config, named, assignments)
        from elanus.storage.without_pandas import keep_pandas_out

        keep_pandas_out()
        program = program_of()
        from elanus.server.startup import CannotStart

    try:
        code = program(settings)
    except CannotStart as error:
        fail(str(error), EXIT_FAILED)
    from elanus.server.ending import end_process

    end_process(code)

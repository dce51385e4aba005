"""The commands ``elanus status``, ``restart-role`` and ``gc``, which use a server's metrics port."""

from __future__ import annotations

from typing import Annotated

import typer

from elanus.cli.options import EXIT_FAILED, DataDir, Url, Wide, fail, observe_url


def status(
    data_dir: DataDir = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
    wide: Wide = False,
) -> None:
    """Show a running server: roles, channels, collections, segments, jobs."""
    from elanus.cli import remote
    from elanus.cli.status import show_status

    try:
        answer = remote.get(observe_url(data_dir, url) + "/status")
        if as_json:
            typer.echo(answer.decode())
        else:
            show_status(answer, wide=wide)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)


def restart_role(
    role: Annotated[str, typer.Argument(help="Such as querynode; `elanus status` lists them.")],
    data_dir: DataDir = None,
    url: Url = None,
) -> None:
    """Restart one role inside a running server of this machine."""
    from elanus.cli import remote

    try:
        remote.restart_role(observe_url(data_dir, url, changes=True), role)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    typer.echo(f"{role} restarted")


def gc(
    data_dir: DataDir = None,
    url: Url = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Delete nothing; show what would be deleted, and what is kept until when."
        ),
    ] = False,
) -> None:
    """Collect garbage now on a running server of this machine, and show what was deleted."""
    from elanus.cli import gc, remote

    try:
        done = gc.run(observe_url(data_dir, url, changes=not dry_run), dry=dry_run)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        fail("no longer waiting: the server continues the collection", EXIT_FAILED)
    if not done:
        raise typer.Exit(EXIT_FAILED)

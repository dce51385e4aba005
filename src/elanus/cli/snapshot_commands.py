"""The commands ``elanus snapshot``, ``elanus clone`` and ``elanus undrop``, with their arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from elanus.cli.options import (
    EXIT_FAILED,
    ServerOptions,
    fail,
    on_server,
)

if TYPE_CHECKING:
    from elanus.api.connector import ConnectorApi

T = TypeVar("T")
Source = Annotated[str, typer.Argument(help="The collection.")]
Name = Annotated[str, typer.Argument(help="The snapshot's name, unique within its collection.")]
Database = Annotated[str, typer.Option(help="The collection's database.")]

snapshot_app = typer.Typer(no_args_is_help=True)


def _asked(server: ServerOptions, call: Callable[[ConnectorApi], Awaitable[T]]) -> T:
    from elanus.cli.snapshots import SnapshotsFailed, asked

    try:
        return asked(server.find(), call)
    except SnapshotsFailed as error:
        fail(str(error), EXIT_FAILED)


@snapshot_app.command("create")
@on_server
def create_snapshot(
    collection: Source,
    name: Name,
    description: Annotated[str, typer.Option(help="What the snapshot is for.")] = "",
    database: Database = "default",
    *,
    server: ServerOptions,
) -> None:
    """Create a snapshot: keep everything that the collection holds now, under a name."""
    made = _asked(server, lambda own: own.create_snapshot(database, collection, name, description))
    from elanus.cli.snapshots import show_snapshots

    show_snapshots([made])


@snapshot_app.command("list")
@on_server
def list_snapshots(
    collection: Source,
    database: Database = "default",
    *,
    server: ServerOptions,
) -> None:
    """List a collection's snapshots, even after it was dropped: their moments and the disk they occupy."""
    found = _asked(server, lambda own: own.snapshots(database, collection))
    from elanus.cli.snapshots import show_snapshots

    show_snapshots(found)


@snapshot_app.command("restore")
@on_server
def restore_snapshot(
    collection: Source,
    name: Name,
    target: Annotated[str, typer.Argument(help="The new collection.")],
    database: Database = "default",
    *,
    server: ServerOptions,
) -> None:
    """Create a collection from a snapshot, without copying files."""
    job = _asked(server, lambda own: own.restore_snapshot(database, collection, name, target))
    from elanus.cli.snapshots import said

    typer.echo(said(job))


@snapshot_app.command("drop")
@on_server
def drop_snapshot(
    collection: Source,
    name: Name,
    database: Database = "default",
    *,
    server: ServerOptions,
) -> None:
    """Drop a snapshot. Collections that were created from it stay."""
    _asked(server, lambda own: own.drop_snapshot(database, collection, name))


@on_server
def clone(
    source: Annotated[str, typer.Argument(help="The collection to clone.")],
    target: Annotated[str, typer.Argument(help="The new collection.")],
    as_of: Annotated[
        str, typer.Option(help="A moment in the past, such as 2026-01-31T12:00:00. Default: now.")
    ] = "",
    database: Database = "default",
    *,
    server: ServerOptions,
) -> None:
    """Create a collection with the rows of another one as of a moment, without copying files."""
    from elanus.cli.snapshots import said
    from elanus.core.errors import InvalidParameter
    from elanus.core.past import moment_of

    try:
        moment = moment_of(as_of)
    except InvalidParameter as error:
        fail(error.message, EXIT_FAILED)
    typer.echo(said(_asked(server, lambda own: own.clone_collection(database, source, target, moment))))


@on_server
def undrop(
    collection: Annotated[str, typer.Argument(help="The name under which it was dropped.")],
    to: Annotated[str, typer.Option(help="Another name for it. Default: its own.", show_default=False)] = "",
    database: Database = "default",
    *,
    server: ServerOptions,
) -> None:
    """Bring back a dropped collection while its files still exist; of several with a name, the last one."""
    from elanus.cli.snapshots import said

    typer.echo(said(_asked(server, lambda own: own.undrop_collection(database, collection, to))))

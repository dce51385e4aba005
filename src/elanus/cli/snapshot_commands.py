"""The commands ``elanus snapshot``, ``elanus clone`` and ``elanus undrop``, with their arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from elanus.cli.options import (
    EXIT_FAILED,
    DataDir,
    TlsCa,
    TlsServerName,
    Token,
    Uri,
    fail,
    server_named,
)

if TYPE_CHECKING:
    from elanus.api.connector import ConnectorApi
    from elanus.cli.import_command import Server

T = TypeVar("T")
Source = Annotated[str, typer.Argument(help="The collection.")]
Name = Annotated[str, typer.Argument(help="The snapshot's name, unique within its collection.")]
Database = Annotated[str, typer.Option(help="The collection's database.")]

snapshot_app = typer.Typer(no_args_is_help=True)


def _asked(server: Server, call: Callable[[ConnectorApi], Awaitable[T]]) -> T:
    from elanus.cli.snapshots import SnapshotsFailed, asked

    try:
        return asked(server, call)
    except SnapshotsFailed as error:
        fail(str(error), EXIT_FAILED)


@snapshot_app.command("create")
def create_snapshot(
    collection: Source,
    name: Name,
    description: Annotated[str, typer.Option(help="What the snapshot is for.")] = "",
    database: Database = "default",
    uri: Uri = "",
    tls_ca: TlsCa = "",
    tls_server_name: TlsServerName = "",
    token: Token = "",
    data_dir: DataDir = None,
) -> None:
    """Keep everything that the collection holds now, under a name."""
    server = server_named(uri, tls_ca, tls_server_name, token, data_dir)
    made = _asked(server, lambda own: own.create_snapshot(database, collection, name, description))
    from elanus.cli.snapshots import show_snapshots

    show_snapshots([made])


@snapshot_app.command("list")
def list_snapshots(
    collection: Source,
    database: Database = "default",
    uri: Uri = "",
    tls_ca: TlsCa = "",
    tls_server_name: TlsServerName = "",
    token: Token = "",
    data_dir: DataDir = None,
) -> None:
    """List the snapshots of a collection, also of one that was dropped: moments, and the disk they keep."""
    server = server_named(uri, tls_ca, tls_server_name, token, data_dir)
    found = _asked(server, lambda own: own.snapshots(database, collection))
    from elanus.cli.snapshots import show_snapshots

    show_snapshots(found)


@snapshot_app.command("restore")
def restore_snapshot(
    collection: Source,
    name: Name,
    target: Annotated[str, typer.Argument(help="The new collection.")],
    database: Database = "default",
    uri: Uri = "",
    tls_ca: TlsCa = "",
    tls_server_name: TlsServerName = "",
    token: Token = "",
    data_dir: DataDir = None,
) -> None:
    """Make a new collection of a snapshot. No file is copied."""
    server = server_named(uri, tls_ca, tls_server_name, token, data_dir)
    job = _asked(server, lambda own: own.restore_snapshot(database, collection, name, target))
    from elanus.cli.snapshots import said

    typer.echo(said(job))


@snapshot_app.command("drop")
def drop_snapshot(
    collection: Source,
    name: Name,
    database: Database = "default",
    uri: Uri = "",
    tls_ca: TlsCa = "",
    tls_server_name: TlsServerName = "",
    token: Token = "",
    data_dir: DataDir = None,
) -> None:
    """Drop a snapshot. Collections that were made of it stay."""
    server = server_named(uri, tls_ca, tls_server_name, token, data_dir)
    _asked(server, lambda own: own.drop_snapshot(database, collection, name))


def clone(
    source: Annotated[str, typer.Argument(help="The collection that is cloned.")],
    target: Annotated[str, typer.Argument(help="The new collection.")],
    as_of: Annotated[
        str, typer.Option(help="A moment in the past, as 2026-01-31T12:00:00. Default: now.")
    ] = "",
    database: Database = "default",
    uri: Uri = "",
    tls_ca: TlsCa = "",
    tls_server_name: TlsServerName = "",
    token: Token = "",
    data_dir: DataDir = None,
) -> None:
    """Make a new collection with the rows of another one, as of a moment. No file is copied."""
    from elanus.cli.snapshots import SnapshotsFailed, moment_of, said

    try:
        moment = moment_of(as_of)
    except SnapshotsFailed as error:
        fail(str(error), EXIT_FAILED)
    server = server_named(uri, tls_ca, tls_server_name, token, data_dir)
    typer.echo(said(_asked(server, lambda own: own.clone_collection(database, source, target, moment))))


def undrop(
    collection: Annotated[str, typer.Argument(help="The name under which it was dropped.")],
    to: Annotated[str, typer.Option(help="Another name for it. Default: its own.", show_default=False)] = "",
    database: Database = "default",
    uri: Uri = "",
    tls_ca: TlsCa = "",
    tls_server_name: TlsServerName = "",
    token: Token = "",
    data_dir: DataDir = None,
) -> None:
    """Bring back the collection that was dropped last under a name, while its files exist."""
    from elanus.cli.snapshots import said

    server = server_named(uri, tls_ca, tls_server_name, token, data_dir)
    typer.echo(said(_asked(server, lambda own: own.undrop_collection(database, collection, to))))

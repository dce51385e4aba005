"""The commands ``elanus backup`` and ``elanus restore``, with their arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from elanus.cli.options import (
    EXIT_FAILED,
    EXIT_FOUND,
    EXIT_MISUSED,
    ServerOptions,
    fail,
    on_server,
)

_HOUR_MS = 3_600_000
_NICE = 10
Target = Annotated[
    str, typer.Argument(help="The directory of backups, or the URL of a bucket: s3://bucket/prefix.")
]
Lease = Annotated[
    float,
    typer.Option(
        min=0.1, max=168, help="How long the server keeps the pinned files if this command is killed."
    ),
]
WithoutIndexes = Annotated[
    bool,
    typer.Option(
        "--without-indexes", help="Leave out index files: restored collections build their indexes again."
    ),
]


@on_server
def backup(
    target: Target,
    collection: Annotated[str, typer.Option(help="One collection. Default: all, with the users.")] = "",
    database: Annotated[str, typer.Option(help="The collection's database.")] = "default",
    name: Annotated[str, typer.Option(help="The backup's name. Default: the time.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="List the backups in the target.")] = False,
    verified: Annotated[
        bool, typer.Option("--verify", help="Read all files of a backup (--name; default: the latest).")
    ] = False,
    deleted: Annotated[
        str, typer.Option("--delete", help="Delete this backup, and the files that no other backup uses.")
    ] = "",
    without_indexes: WithoutIndexes = False,
    lease_hours: Lease = 24,
    *,
    server: ServerOptions,
) -> None:
    """Back up a server as of one moment. Files that an earlier backup copied are not copied again."""
    if listed + verified + bool(deleted) > 1:
        fail("--list, --verify and --delete: give one of them", EXIT_MISUSED)
    from rich.console import Console

    from elanus.cli.backup_files import BackupFiles, target_url
    from elanus.cli.backup_tables import show_backup, show_backups
    from elanus.cli.backups import Wanted, back_up
    from elanus.cli.pinned_files import progress_bar

    console = Console()
    with _failures_shown("the next backup uses what was copied"):
        files = BackupFiles(target_url(target))
        if listed:
            show_backups(console, files.backups())
        elif deleted:
            files_gone = files.delete(files.backup(deleted))
            typer.echo(f"{deleted}: deleted, with {files_gone} files that no other backup has")
        elif verified:
            chosen = files.backup(name)
            with progress_bar(console, chosen.name, chosen.size_bytes) as advance:
                wrong = files.verify(chosen, advance)
            if wrong:
                fail("\n".join(wrong), EXIT_FOUND)
            typer.echo(f"{chosen.name}: all files are there and have their checksums")
        else:
            lease_ms = int(lease_hours * _HOUR_MS)
            wanted = Wanted(database, collection, name, lease_ms, not without_indexes)
            show_backup(console, back_up(server.find(), files, wanted, console))


@on_server
def verify(
    collection: Annotated[str, typer.Option(help="One collection. Default: all.")] = "",
    database: Annotated[str, typer.Option(help="The collection's database.")] = "default",
    lease_hours: Lease = 24,
    *,
    server: ServerOptions,
) -> None:
    """Read all files of a running server, compare them with their checksums, and name damaged ones.

    Each collection is pinned while its files are read, by this process, at low priority. Rows that only the
    log has are written to files first. The exit code is 3 if something is damaged, else 1 if a collection
    could not be read.
    """
    from rich.console import Console

    from elanus.cli.verifying import Damage
    from elanus.cli.verifying import verify as verify_files

    os.nice(_NICE)
    damages: list[Damage] = []
    unread: list[str] = []
    with _failures_shown("the collections named above were read"):
        found = server.find()
        for one in verify_files(found, database, collection, int(lease_hours * _HOUR_MS), Console()):
            damages += one.damages
            if one.unread:
                unread.append(f"{one.collection}: not read: {one.unread}")
                continue
            state = f"{len(one.damages)} damaged" if one.damages else "whole"
            typer.echo(f"{one.collection}: {one.files} files, {one.size_bytes / 2**20:,.1f} MB, {state}")
    if damages or unread:
        code = EXIT_FOUND if damages else EXIT_FAILED
        fail("\n".join([*(damage.text for damage in damages), *unread]), code)


@on_server
def restore(
    target: Target,
    name: Annotated[str, typer.Option("--backup", help="The backup's name. Default: the latest.")] = "",
    collection: Annotated[str, typer.Option(help="One collection. Default: all of the backup.")] = "",
    database: Annotated[str, typer.Option(help="The collection's database in the backup.")] = "default",
    as_name: Annotated[str, typer.Option("--as", help="Another name for the collection.")] = "",
    into: Annotated[str, typer.Option(help="Another database; created if it does not exist.")] = "",
    users: Annotated[bool, typer.Option("--users", help="Restore users, roles and grants as well.")] = False,
    without_indexes: WithoutIndexes = False,
    lease_hours: Lease = 24,
    *,
    server: ServerOptions,
) -> None:
    """Restore collections from a backup. Repeat the command to continue an interrupted restore."""
    from rich.console import Console

    from elanus.cli.backup_files import BackupFiles, target_url
    from elanus.cli.restores import Restoring
    from elanus.cli.restores import restore as restore_backup

    found = server.find()
    lease_ms = int(lease_hours * _HOUR_MS)
    indexes = not without_indexes
    wanted = Restoring(name, database, collection, as_name, into, users, lease_ms, indexes)
    with _failures_shown("the same command continues"):
        files = BackupFiles(target_url(target))
        for line in restore_backup(found, files, wanted, Console()):
            typer.echo(line)


@contextmanager
def _failures_shown(interrupted: str) -> Iterator[None]:
    """End a command that fails with one line. ``interrupted``: what to do after Ctrl-C."""
    from elanus.cli.backup_files import BackupFailed
    from elanus.core.errors import ElanusError
    from elanus.core.faults import StorageFault

    try:
        yield
    except (BackupFailed, StorageFault) as error:
        fail(str(error), EXIT_FAILED)
    except ElanusError as error:
        fail(error.message, EXIT_FAILED)
    except KeyboardInterrupt:
        fail(f"interrupted: {interrupted}", EXIT_FAILED)

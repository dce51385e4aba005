"""The files of a pinned snapshot, which a command reads or writes itself in the server's object store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from elanus.api.backups import BackupApi
from elanus.api.connector import SNAPSHOTS, CollectionSnapshot, SnapshotLease
from elanus.cli.backup_files import BackupFailed
from elanus.cli.server_calls import Server, ask
from elanus.core.errors import ElanusError
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectMissing, ObjectStore
from elanus.storage.snapshots import read_snapshot


def open_snapshot(lease: SnapshotLease) -> tuple[ObjectStore, CollectionSnapshot]:
    """Return the server's object store and the snapshot in it. Raises `BackupFailed` if this machine cannot
    read it."""
    store = open_store(lease.store_url)
    try:
        return store, read_snapshot(store, lease.path, SNAPSHOTS)
    except ObjectMissing:
        raise BackupFailed(
            f"the server's files are in {store.url}, which this machine does not have: run the command on "
            "the server's machine, or use a server with objects in a bucket (storage.url)"
        ) from None


async def released(own: BackupApi, leases: Sequence[SnapshotLease]) -> list[str]:
    """Release what is pinned. Returns why some could not be.

    They end with their leases: it is no reason to fail, and none to hide another error.
    """
    outcomes = await asyncio.gather(*(own.release(one.snapshot_id) for one in leases), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, ElanusError):
            raise outcome
    return [str(outcome) for outcome in outcomes if outcome is not None]


def let_go(server: Server, leases: Sequence[SnapshotLease], console: Console) -> None:
    """Release what is pinned, and say what could not be."""
    try:
        failed = ask(server, BackupApi, lambda own: released(own, leases))
    except ElanusError as error:
        failed = [str(error)]
    if failed:
        console.print(
            f"pins not released, they end with their leases: {failed[0]}", style="yellow", markup=False
        )


@contextlib.contextmanager
def progress_bar(console: Console, name: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; yields the function that moves it by a number of bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(name, total=total_bytes)
        yield lambda size_bytes: progress.advance(bar, size_bytes)

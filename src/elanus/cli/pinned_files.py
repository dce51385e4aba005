"""The files of a pinned snapshot, which a command reads or writes itself in the server's object store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from elanus.api.connector import SNAPSHOTS, CollectionSnapshot, SnapshotLease
from elanus.cli.backup_files import BackupFailed
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


@contextlib.contextmanager
def progress_bar(console: Console, name: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; yields the function that moves it by a number of bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(name, total=total_bytes)
        yield lambda size_bytes: progress.advance(bar, size_bytes)

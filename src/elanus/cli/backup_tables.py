"""The tables that `elanus backup` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from elanus.cli.backup_files import Backup
from elanus.cli.columns import Column, show, table
from elanus.cli.snapshots import time_of
from elanus.cli.status import size


def show_backups(console: Console, backups: Sequence[Backup]) -> None:
    names = ("backup", "collections", "rows", "size", "copied files", "as of")
    rows = [
        (
            backup.name,
            str(len(backup.collections)),
            f"{sum(c.rows for c in backup.collections):,}",
            size(backup.size_bytes),
            str(sum(c.copied for c in backup.collections)),
            _moment(backup),
        )
        for backup in backups
    ]
    show(console, table("Backups", tuple(map(Column, names)), rows))


def show_backup(console: Console, backup: Backup) -> None:
    """Show a backup with its collections."""
    names = ("database", "collection", "rows", "files", "of these copied", "size")
    rows = [
        (c.database, c.name, f"{c.rows:,}", str(c.files), str(c.copied), size(c.size_bytes))
        for c in backup.collections
    ]
    show(console, table("Collections", tuple(map(Column, names)), rows))
    console.print(f"backup {backup.name}, as of {_moment(backup)}", highlight=False, soft_wrap=True)


def _moment(backup: Backup) -> str:
    """Return when its rows were there; without a collection it is as of no moment."""
    return time_of(backup.moment) if backup.collections else "no moment: it has no collections"

"""The command ``elanus import``, with its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elanus.cli.options import EXIT_FAILED, ServerOptions, fail, on_server


@on_server
def import_(
    files: Annotated[list[Path], typer.Argument(help="Files on this machine, or directories of them.")],
    collection: Annotated[str, typer.Option(help="The collection to import into; it must exist.")],
    partition: Annotated[str, typer.Option(help="Default: the default partition.", show_default=False)] = "",
    database: Annotated[str, typer.Option(help="The collection's database.")] = "default",
    idempotency_key: Annotated[
        str, typer.Option(help="A name for this import: repeating the command with it imports nothing twice.")
    ] = "",
    max_rejects: Annotated[
        int,
        typer.Option(
            min=0, help="How many rows that do not fit the schema may be left out; they are listed."
        ),
    ] = 0,
    mode: Annotated[
        str, typer.Option(help="insert, or upsert: replaces the rows that have the same keys.")
    ] = "insert",
    duplicates: Annotated[
        str, typer.Option(help="Which rows of one key are added: keep (all), first, last or reject.")
    ] = "",
    *,
    server: ServerOptions,
) -> None:
    """Import files into a collection: all rows at once, or none. Ctrl-C cancels.

    Parquet, JSON, JSON lines, CSV, and NumPy files (a file a column).
    """
    from rich.console import Console

    from elanus.cli.imports import ImportFailed, Wanted, import_files

    found = server.find()
    wanted = Wanted(files, database, collection, partition, idempotency_key, max_rejects, mode, duplicates)
    try:
        done = import_files(found, wanted, Console(stderr=True))
    except ImportFailed as error:
        fail(f"nothing was imported: {error}", EXIT_FAILED)
    left_out = f"; {done.rejected} rows did not fit: rejects/{done.task_id} in the import directory"
    doubled = f"; {done.left_out} left out because of their keys" if done.left_out else ""
    rejected = left_out if done.rejected else ""
    typer.echo(f"{done.rows} rows imported into {done.collection}{rejected}{doubled}")

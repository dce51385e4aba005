"""`elanus import`: import Parquet files of this machine into a collection, with a progress bar.

The server reads only files in its import directory. The command therefore creates links to the files there,
in a directory of its own, for the duration of the import; the files themselves are neither copied nor moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from elanus.api.connector import ConnectorApi
from elanus.cli.server_calls import Server, connected
from elanus.core.errors import DeadlineExceeded, ElanusError, InvalidParameter, NotReady, Unavailable
from elanus.core.ids import TaskID
from elanus.core.import_files import SUFFIXES
from elanus.core.imports import ENDED, ImportState, ImportTask

_LOOK_S = 0.2
_SILENCE_MAX_S = 300.0
_KEPT_SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv")
_PREFIX = "elanus-import-"
"""The name prefix of a directory of links."""
_LEFT_BEHIND_S = 7 * 24 * 3600.0
_WRITTEN_SHARE = 0.9
"""The share of the bar at which the rows are committed, and wait to be indexed and served."""


class ImportFailed(Exception):
    """Nothing was imported. The text is for the user."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The files to import, and the collection. ``partition`` "": the default one.

    ``key``: one import is made for it, however often the command runs; "" for none. ``rejects_max``: how many
    rows that do not fit are left out. ``mode``, ``duplicates``: "" for the default.
    """

    files: Sequence[Path]
    database: str
    collection: str
    partition: str
    key: str = ""
    rejects_max: int = 0
    mode: str = ""
    duplicates: str = ""

    @property
    def options(self) -> dict[str, str]:
        """As the server takes them."""
        options = {"idempotency_key": self.key} if self.key else {}
        if self.rejects_max:
            options |= {"on_error": "reject", "max_rejects": str(self.rejects_max)}
        named = {"mode": self.mode, "duplicates": self.duplicates}
        return options | {name: value for name, value in named.items() if value}


def import_files(server: Server, wanted: Wanted, console: Console) -> ImportTask:
    """Import the files and wait until reads find all of their rows.

    Ctrl-C cancels the import, unless it has committed. Raises `ImportFailed`.
    """
    try:
        return asyncio.run(_import(server, wanted, console))
    except ElanusError as error:
        raise ImportFailed(error.message) from None


async def _import(of: Server, wanted: Wanted, console: Console) -> ImportTask:
    async with connected(of) as channel:
        server = channel.client(ConnectorApi)
        files = found_files(wanted.files)
        with staged(files, await server.import_directory()) as names:
            place = (wanted.database, wanted.collection, wanted.partition)
            task = await server.start_import(*place, names, wanted.options)
            try:
                task = await _followed(server, task, console)
            except asyncio.CancelledError:
                task = await _cancelled(server, task.task_id)
    if task.state is ImportState.FAILED:
        raise ImportFailed(_with_own_names(task.reason, names, files))
    return task


def _with_own_names(text: str, names: Sequence[str], files: Sequence[Path]) -> str:
    """Replace the links' names in a message of the server with the names of the files."""
    for name, file in zip(names, files, strict=True):
        text = text.replace(name, str(file))
    return text


async def _followed(server: ConnectorApi, task: ImportTask, console: Console) -> ImportTask:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(_said(task), total=1.0)
        while task.state not in ENDED:
            await asyncio.sleep(_LOOK_S)
            task = await _looked_at(server, task.task_id)
            progress.update(bar, description=_said(task), completed=_share(task))
    return task


async def _looked_at(server: ConnectorApi, task_id: TaskID) -> ImportTask:
    """Return the task as it is now. A server that restarts is waited for: it goes on with the import."""
    until_s = time.monotonic() + _SILENCE_MAX_S
    while True:
        try:
            return await server.import_task(task_id)
        except (Unavailable, DeadlineExceeded, NotReady):
            if time.monotonic() >= until_s:
                raise
            await asyncio.sleep(_LOOK_S)


async def _cancelled(server: ConnectorApi, task_id: TaskID) -> ImportTask:
    """Cancel the task after Ctrl-C. Returns it: failed, or, if it was too late, with its rows committed."""
    with contextlib.suppress(InvalidParameter):
        await server.cancel_import(task_id)
    return await server.import_task(task_id)


def _said(task: ImportTask) -> str:
    match task.state:
        case ImportState.PENDING:
            return "waiting for its turn"
        case ImportState.STARTED:
            return f"importing into {task.collection}"
        case ImportState.UNCOMMITTED:
            return f"{task.rows:,} rows; waiting for its commit"
        case ImportState.PERSISTED:
            return f"{task.rows:,} rows; indexing, loading"
        case _:
            return f"{task.rows:,} rows"


def _share(task: ImportTask) -> float:
    match task.state:
        case ImportState.COMPLETED:
            return 1.0
        case ImportState.PERSISTED | ImportState.UNCOMMITTED:
            return _WRITTEN_SHARE
        case _:
            return task.percent / 100 * _WRITTEN_SHARE


def found_files(named: Sequence[Path]) -> list[Path]:
    """Return the files, with those of directories that can be imported. Raises `ImportFailed`."""
    files: list[Path] = []
    for path in named:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not inside:
                raise ImportFailed(f"{path} has no file to import: they end with {', '.join(SUFFIXES)}")
            files += inside
        else:
            files.append(path)
    return files


@contextlib.contextmanager
def staged(files: Sequence[Path], directory_url: str) -> Iterator[tuple[str, ...]]:
    """Link the files into the import directory; yields the links' names there. Removes them at the end.

    Raises `ImportFailed` if a file does not exist, or the directory is not on this machine.
    """
    parts = urlsplit(directory_url)
    root = Path(unquote(parts.path))
    if parts.scheme != "file" or not root.is_dir():
        raise ImportFailed(f"the server imports from {directory_url}, which is no directory of this machine")
    for file in files:
        if not file.is_file():
            raise ImportFailed(f"{file}: no such file")
    _clear(root)
    own = root / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    own.mkdir()
    try:
        names = [_name(number, file, files) for number, file in enumerate(files)]
        for name, file in zip(names, files, strict=True):
            (own / name).parent.mkdir(exist_ok=True)
            (own / name).symlink_to(file.resolve())
        yield tuple(f"{own.name}/{name}" for name in names)
    finally:
        shutil.rmtree(own)


def _clear(root: Path) -> None:
    """Remove the links of killed commands once nothing can be waiting for them any more.

    Only links are removed: anything else there belongs to someone else.
    """
    for own in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another command is removing it, or it is not ours
            if time.time() - own.stat().st_mtime > _LEFT_BEHIND_S:
                for link in own.iterdir():
                    if link.is_symlink():
                        link.unlink()
                own.rmdir()


def _name(number: int, file: Path, files: Sequence[Path]) -> str:
    """Return a name that the server accepts, whatever the file is called.

    NumPy files keep theirs, which is their column's, in a directory for each that they come from.
    """
    if file.suffix == ".npy":
        first = next(n for n, other in enumerate(files) if other.parent == file.parent)
        return f"{first:04}/{file.name}"
    suffix = file.suffix if file.suffix in _KEPT_SUFFIXES else ".parquet"
    return f"{number:04}-{file.stem.replace('.', '_')}{suffix}"

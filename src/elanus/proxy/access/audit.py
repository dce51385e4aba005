"""The audit log: who asked for what, and whether it was allowed. One JSON object a line.

Every change of definitions and of users is recorded, and every refusal. Reads, writes of rows and other calls
that only look are recorded by a share. A line never contains vectors, rows, filters or passwords: it names
the objects of a call, not its content.

Lines are written by a thread of the log's own. A caller waits for it only when the queue is full, for a short
time, and only with a record that must not be lost; what is lost all the same is counted.
"""

from __future__ import annotations

import datetime
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
import structlog

from elanus.core.names import recorded_name
from elanus.proxy.access.caller import FinishedCall

_QUEUE_MAX = 10_000
_PATIENCE_S = 0.2
_BATCH_MAX = 1_000
_RECORD_MAX_BYTES = 2_000
"""Of nearly all records: so much of the file is read for each that is shown."""
_LOOKING = ("Get", "Describe", "Has", "Show", "List", "Select", "Check", "BatchDescribe")
_DATA = frozenset(
    {
        "Search",
        "HybridSearch",
        "Query",
        "Insert",
        "Upsert",
        "Delete",
        "AllocTimestamp",
        "CalcDistance",
        "RunAnalyzer",
        "Dummy",
        "ConnectorApi.import_directory",
        "ConnectorApi.import_task",
        "ConnectorApi.write_schema",
        "ConnectorApi.write_target",
        "KeysApi.list_keys",
        "Console.Status",
        "Console.Doctor",
        "Console.Audit",
    }
)
_log = structlog.get_logger("proxy")


def is_sampled(call: FinishedCall) -> bool:
    """Whether only a share of such calls is recorded. Refusals and changes always are."""
    if call.refused:
        return False
    name = call.operation.removeprefix("Rest.")  # the same call, whichever port it came by
    return name in _DATA or name.startswith(_LOOKING)


def audit_line(call: FinishedCall, time_s: float) -> bytes:
    """Return the record of a call that ended at ``time_s``, seconds since 1970, as a line of JSON."""
    when = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    record = {
        "time": when.isoformat(timespec="milliseconds"),
        "user": recorded_name(call.caller.user),
        "key": call.caller.key,
        "origin": call.caller.origin,
        "operation": call.operation,
        "privilege": call.permission.privilege,
        "object_type": call.permission.object_type,
        "database": recorded_name(call.database),
        "objects": [recorded_name(name) for name in call.objects],
        "decision": "refused" if call.refused else "allowed",
        "code": call.code,
        "ms": round(call.seconds * 1000, 3),
        "trace_id": call.trace,
    }
    return msgspec.json.encode(record) + b"\n"


class Audit(Protocol):
    """Where finished calls are recorded. Called from the threads that answer: it must not block."""

    def record(self, call: FinishedCall) -> None: ...


class AuditLog:
    """Implements `Audit`. Safe to call from any thread.

    ``file``: the lines that were written last; ``file.1`` those before, and so on, ``files_max`` in all, each
    of ``file_max_bytes``. A line that a crash cut off stays, and counts for nothing.
    ``data_share``: the share of calls recorded of those that only read or write rows.
    ``lost`` is called with the number of records that could not be written. ``now_s``: seconds since 1970.
    Raises `OSError` when the file cannot be opened.
    """

    def __init__(
        self,
        file: Path,
        now_s: Callable[[], float],
        lost: Callable[[int], None],
        *,
        data_share: float,
        file_max_bytes: int,
        files_max: int,
    ) -> None:
        self._file = file
        self._now_s = now_s
        self._lost = lost
        self._data_share = data_share
        self._file_max_bytes = file_max_bytes
        self._files_max = files_max
        self._counted = itertools.count(1)
        self._lines: queue.Queue[bytes | None] = queue.Queue(_QUEUE_MAX)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._out = self._opened()
        self._writer = threading.Thread(target=self._write, name="audit", daemon=True)
        self._writer.start()

    def record(self, call: FinishedCall) -> None:
        sampled = is_sampled(call)
        if sampled and not self._is_chosen():
            return
        line = audit_line(call, self._now_s())
        try:
            if sampled:
                self._lines.put_nowait(line)
            else:
                self._lines.put(line, timeout=_PATIENCE_S)
        except queue.Full:
            self._lost(1)

    def latest(self, records_max: int) -> list[dict[str, Any]]:
        """Return the last records of the current file, the newest first; those of this moment may lack.

        The cost is bounded by ``records_max``, not by the file's size.
        """
        read_bytes = records_max * _RECORD_MAX_BYTES
        try:
            with self._file.open("rb") as file:
                begin = max(0, file.seek(0, os.SEEK_END) - read_bytes)
                file.seek(begin)
                tail = file.read(read_bytes)
        except FileNotFoundError:  # between two files
            return []
        lines = tail.split(b"\n")[1 if begin else 0 : -1]  # the first may have begun before what was read
        return list(itertools.islice(_records(reversed(lines)), records_max))

    def close(self) -> None:
        """Write what was recorded before, and close the file."""
        self._lines.put(None)
        self._writer.join()

    def _is_chosen(self) -> bool:
        """Whether the next of the sampled calls is recorded: evenly, without chance."""
        n = next(self._counted)
        return int(n * self._data_share) > int((n - 1) * self._data_share)

    def _opened(self) -> BinaryIO:
        out = open(self._file, "a+b", opener=_private)  # noqa: SIM115 - the writer closes it
        if self._file.stat().st_size:
            out.seek(-1, os.SEEK_END)
            if out.read(1) != b"\n":  # the last line was cut off: the next record is a line of its own
                out.write(b"\n")
                out.flush()
        self._size_bytes = self._file.stat().st_size
        return out

    def _write(self) -> None:
        ended = False
        while not ended:
            lines = [self._lines.get()]
            with suppress(queue.Empty):
                while len(lines) < _BATCH_MAX:
                    lines.append(self._lines.get_nowait())
            ended = None in lines
            batch = [line for line in lines if line is not None]
            try:
                self._write_batch(batch)
            except OSError as error:
                self._lost(len(batch))
                _log.error("audit records lost", file=str(self._file), records=len(batch), error=str(error))
        self._out.close()

    def _write_batch(self, batch: list[bytes]) -> None:
        if self._out.closed:
            self._out = self._opened()
        for line in batch:
            if self._size_bytes and self._size_bytes + len(line) > self._file_max_bytes:
                self._rotate()
            self._size_bytes += self._out.write(line)
        self._out.flush()

    def _rotate(self) -> None:
        self._out.close()
        for n in range(self._files_max - 1, 0, -1):
            older = self._numbered(n - 1)
            if older.exists():
                older.replace(self._numbered(n))
        if self._files_max == 1:
            self._file.unlink()
        self._out = self._opened()

    def _numbered(self, n: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{n}") if n else self._file


def _records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the records of lines; a line that was cut off has none."""
    for line in lines:
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line, type=dict[str, Any])


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

"""Delta logs that were read lately.

A delta log belongs to a vchannel, and every segment of the vchannel that is loaded needs those later than
itself: a node that starts with a hundred segments would fetch and parse each file a hundred times. Files
are written once and never change, so what was read is kept, up to a number of bytes: more than one load
needs, for where the same files are asked for in the same order again and again, a cache that is too small
for them has always let go of the next one.

There may be many, and all small: one for each range that had deletes. What takes time is to ask the store for
one after the other, so several are fetched at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from elanus.core.segments import BinlogFile
from elanus.storage.delta_log import read_delta_log
from elanus.storage.port import ObjectStore

_KEPT_BYTES_MAX = 128 * 1024 * 1024
"""Some five million deletes of integer keys."""


class DeltaLogs:
    """Reads delta logs; safe for many threads. Two that ask for one file at a time both read it.

    ``fetches_max``: how many files one call fetches at a time; 1: in the caller's own thread.
    """

    def __init__(self, store: ObjectStore, fetches_max: int, kept_bytes_max: int = _KEPT_BYTES_MAX) -> None:
        self._store = store
        self._fetches_max = fetches_max
        self._kept_bytes_max = kept_bytes_max
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def read(self, files: Sequence[BinlogFile]) -> list[pa.Table]:
        """Each as by `elanus.storage.delta_log.read_delta_log`. Raises `ObjectMissing`, `CorruptObject`."""
        tables = {file.path: self._look_up(file) for file in files}
        missing = [file for file in files if tables[file.path] is None]
        fetches = min(self._fetches_max, len(missing))
        if fetches > 1:
            with ThreadPoolExecutor(fetches, thread_name_prefix="elanus-delta-logs") as threads:
                fetched = list(threads.map(self._fetch, missing))
        else:
            fetched = [self._fetch(file) for file in missing]
        tables |= {file.path: table for file, table in zip(missing, fetched, strict=True)}
        return [tables[file.path] for file in files]

    def _look_up(self, file: BinlogFile) -> pa.Table | None:
        with self._lock:
            kept = self._kept.get(file.path)
            if kept is not None:
                self._kept.move_to_end(file.path)
            return kept

    def _fetch(self, file: BinlogFile) -> pa.Table:
        table = read_delta_log(self._store, file)
        with self._lock:
            if file.path not in self._kept and table.nbytes <= self._kept_bytes_max:
                self._kept[file.path] = table
                self._kept_bytes += table.nbytes
                while self._kept_bytes > self._kept_bytes_max:
                    _, oldest = self._kept.popitem(last=False)
                    self._kept_bytes -= oldest.nbytes
        return table

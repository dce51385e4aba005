"""A cache of recently read delta logs.

A delta log belongs to a vchannel, and every loaded segment of the vchannel needs the delta logs later than
itself: a node that starts with a hundred segments would fetch and parse each file a hundred times. Files are
written once and never change, so they are kept after reading, up to a number of bytes. The limit exceeds what
one load needs: when the same files are requested in the same order repeatedly, a cache that is too small for
them has always evicted the next one.

There may be many files, all small: one for each range that had deletes. Most of the time goes into requesting
them from the store one after the other, so several are fetched at once.
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
"""About five million deletes of integer keys."""


class DeltaLogs:
    """Reads delta logs. Safe for many threads; two that request the same file at the same time both read it.

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
        """Read each file as `elanus.storage.delta_log.read_delta_log` does.

        Raises `ObjectMissing`, `CorruptObject`.
        """
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

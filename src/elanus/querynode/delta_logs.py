"""Delta logs that were read lately.

A delta log belongs to a vchannel, and every segment of the vchannel that is loaded needs those later than
itself: a node that starts with a hundred segments would fetch and parse each file a hundred times. Files
are written once and never change, so what was read is kept, up to a number of bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from elanus.core.segments import BinlogFile
from elanus.storage.delta_log import read_delta_log
from elanus.storage.port import ObjectStore

_KEPT_BYTES_MAX = 16 * 1024 * 1024


class DeltaLogs:
    """Reads delta logs; safe for many threads. Two that ask for one file at a time both read it."""

    def __init__(self, store: ObjectStore, kept_bytes_max: int = _KEPT_BYTES_MAX) -> None:
        self._store = store
        self._kept_bytes_max = kept_bytes_max
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def read(self, file: BinlogFile) -> pa.Table:
        """As `elanus.storage.delta_log.read_delta_log`. Raises `ObjectMissing`, `CorruptObject`."""
        with self._lock:
            kept = self._kept.get(file.path)
            if kept is not None:
                self._kept.move_to_end(file.path)
                return kept
        table = read_delta_log(self._store, file)
        with self._lock:
            if file.path not in self._kept and table.nbytes <= self._kept_bytes_max:
                self._kept[file.path] = table
                self._kept_bytes += table.nbytes
                while self._kept_bytes > self._kept_bytes_max:
                    _, oldest = self._kept.popitem(last=False)
                    self._kept_bytes -= oldest.nbytes
        return table

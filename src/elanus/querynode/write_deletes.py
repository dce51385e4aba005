"""The deletes of committed writes on one vchannel, which a query node gets as files and not from the log.

A version says from which moment reads see them, as it says for the write's rows. They concern every row that
is older than the write's commit: rows in segments that are held when the version arrives, in segments that
are loaded under an earlier target afterwards, and growing rows that are yet to be read from the log. So they
are kept until the checkpoint and the node's own reading have both passed the commit: everything that is
loaded, followed or read from then on has them already, or is newer. Deletes that are still unserved are kept
longer: the other nodes have yet to serve them, and until then what is requested lacks them.

A node that serves nothing yet may have read deletes that the others have served before its first version: no
version will name them. They are *missed* here: segments that were loaded without them are loaded again, and
growing rows are read again, with the deletes then among those that both have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from elanus.core.segments import BinlogFile
from elanus.core.timestamps import Timestamp
from elanus.querynode.deletes import DeleteBatch, WriteMoments, deletes_of_delta_logs
from elanus.storage.delta_log import read_delta_log
from elanus.storage.port import ObjectStore

Batches = tuple[DeleteBatch, ...]


@dataclass(frozen=True, slots=True)
class _Write:
    """``until``: no row later than this is concerned."""

    until: Timestamp
    batches: Batches


class WriteDeletes:
    """For the loop thread. Files are known by their paths."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Write] = {}
        self._served: dict[str, _Write] = {}
        self._unserved: frozenset[str] = frozenset()
        self.changes = 0
        """How often deletes have come into effect."""
        self.missed = 0
        """How often no version had named deletes when they were served."""

    def unserved(self, paths: Iterable[str]) -> None:
        """Take note of the delta logs of the vchannel that are unserved now."""
        self._unserved = frozenset(paths)
        served = [path for path in self._waiting if path not in self._unserved]
        for path in served:
            del self._waiting[path]
        self.missed += bool(served)

    def unread(self, files: Iterable[BinlogFile]) -> list[BinlogFile]:
        """Return the files whose deletes are not here."""
        return [f for f in files if f.path not in self._waiting and f.path not in self._served]

    def wait(self, file: BinlogFile, batches: Batches) -> None:
        """Keep deletes for the version that will name their file."""
        self._waiting[file.path] = _Write(file.ts_max, batches)

    def serve(self, file: BinlogFile, batches: Batches) -> None:
        """Keep deletes that are in effect, for rows that are read from the log later."""
        self._served[file.path] = _Write(file.ts_max, batches)
        self.changes += 1

    def waiting(self, paths: Iterable[str]) -> Iterator[str]:
        """Return those of the delta logs that wait for a version."""
        return (path for path in paths if path in self._waiting)

    def not_in_effect(self, paths: Iterable[str]) -> frozenset[str]:
        """Return those of the delta logs that `in_effect` does not return the deletes of."""
        return frozenset(path for path in paths if path not in self._served)

    def announced(self, deletes: Mapping[str, Timestamp]) -> Batches:
        """Take note of the moments of a version; return the deletes that take effect with it.

        From now on they are among those of `of_later_rows` and `in_effect`.
        """
        found: list[DeleteBatch] = []
        for path in [path for path in self._waiting if path in deletes]:
            write, moment = self._waiting.pop(path), deletes[path]
            batches = tuple(replace(batch, moment=moment) for batch in write.batches)
            self._served[path] = _Write(write.until, batches)
            found += batches
            self.changes += 1
        return tuple(found)

    def of_later_rows(self, tick: Timestamp) -> Batches:
        """Return the deletes that may concern rows that are read from the log after ``tick``."""
        return tuple(batch for w in self._served.values() if w.until > tick for batch in w.batches)

    def in_effect(self) -> Batches:
        """Return the deletes that what was requested from an earlier target may lack."""
        return tuple(batch for w in self._served.values() for batch in w.batches)

    def forget(self, before: Timestamp) -> None:
        """Drop deletes in effect that concern nothing that is loaded, followed or read from ``before`` on."""
        kept = self._unserved
        self._served = {path: w for path, w in self._served.items() if w.until > before or path in kept}


def read_write(store: ObjectStore, file: BinlogFile, moments: WriteMoments | None) -> Batches:
    """Read the deletes of a write. Raises `ObjectMissing`, `CorruptObject`."""
    found = deletes_of_delta_logs([read_delta_log(store, file)]).values()
    return tuple(replace(batch, moments=moments) for batch in found)

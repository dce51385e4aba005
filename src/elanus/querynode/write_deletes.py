"""The deletes of committed writes on one vchannel, which a query node gets as files and not from the log.

A version says from which moment reads see them, as it says for the write's rows. They concern every row that
is older than the write's commit: rows in segments that are held when the version arrives, in segments that
are loaded under an earlier target afterwards, and growing rows that are yet to be read from the log. So they
are kept until the checkpoint and the node's own reading have both passed the commit: everything that is
loaded, followed or read from then on has them already, or is newer. Deletes that are still unserved are kept
longer: until the other nodes serve them too, what is requested lacks them.

The others may serve a write before this node takes the version that names its deletes: it serves nothing yet,
lags, or is a mirror that was busy. The next request to follow the vchannel shows that: the file is no longer
unserved, or the commit has a moment and was not known here.

Deletes that have come into effect are *unapplied* until they have reached everything that is held. Applying
them twice changes nothing, so an interrupted application is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from elanus.api.querynode import WatchVchannel
from elanus.core.segments import BinlogFile
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querynode.deletes import DeleteBatch, WriteMoments, deletes_of_delta_logs
from elanus.storage.delta_log import read_delta_log
from elanus.storage.port import ObjectStore

Batches = tuple[DeleteBatch, ...]
_KNOWN_MAX = 4096


@dataclass(frozen=True, slots=True)
class _Write:
    """``until``: no row later than this is concerned. ``listed``: the checkpoint of the request that had it
    as unserved."""

    until: Timestamp
    batches: Batches
    listed: Timestamp = NO_TIMESTAMP


class WriteDeletes:
    """For the loop thread. Files are known by their paths."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Write] = {}
        self._served: dict[str, _Write] = {}
        self._unapplied: dict[str, None] = {}
        self._unserved: frozenset[str] = frozenset()
        self._known: set[Timestamp] = set()
        """The commits of writes that everything held has, or will have once what is unapplied is applied."""
        self.changes = 0
        """How often deletes have come into effect."""

    # what a request to follow the vchannel says

    def listed(self, request: WatchVchannel) -> None:
        """Take note of the unserved files. Others have served those that wait here and are not among them."""
        self._unserved = frozenset(log.file.path for log in request.unserved)
        for path, write in tuple(self._waiting.items()):
            is_outdated = request.checkpoint.ts < write.listed
            if path not in self._unserved and not is_outdated:
                self._take_effect(path, request.moments.get(write.until, NO_TIMESTAMP))

    def missed(self, request: WatchVchannel) -> list[BinlogFile]:
        """Return the delta logs with deletes that have been served without this node's knowing of them."""
        commits = _served_by(request) - self._known
        files = [log.file for log in request.delta_logs] if commits else []
        return [f for f in files if any(f.ts_min <= commit <= f.ts_max for commit in commits)]

    def know(self, request: WatchVchannel) -> None:
        """Everything that is held has the deletes that the request says are served."""
        self._known |= _served_by(request)
        if len(self._known) > _KNOWN_MAX:
            first = min(request.moments, default=NO_TIMESTAMP)
            self._known = {commit for commit in self._known if commit >= first}

    def unread(self, files: Iterable[BinlogFile]) -> list[BinlogFile]:
        """Return the files whose deletes are not here."""
        return [f for f in files if f.path not in self._waiting and f.path not in self._served]

    def wait(self, file: BinlogFile, batches: Batches, checkpoint: Timestamp) -> None:
        """Keep deletes for the version that will name their file. ``checkpoint``: that of the request."""
        self._waiting[file.path] = _Write(file.ts_max, batches, checkpoint)

    def serve(self, file: BinlogFile, batches: Batches) -> None:
        """Keep deletes that are in effect, for rows that are read from the log later."""
        self._served[file.path] = _Write(file.ts_max, batches)
        self.changes += 1

    def catch_up(self, file: BinlogFile) -> None:
        """Have the deletes in a file applied to what is held, unless they still wait for a version."""
        if file.path in self._served:
            self._unapplied[file.path] = None

    # what comes into effect

    def announced(self, deletes: Mapping[str, Timestamp]) -> None:
        """Take note of the moments of a version: the deletes that it names take effect."""
        for path in [path for path in self._waiting if path in deletes]:
            self._take_effect(path, deletes[path])

    def _take_effect(self, path: str, moment: Timestamp) -> None:
        write = self._waiting.pop(path)
        batches = tuple(replace(batch, moment=moment) for batch in write.batches)
        self._served[path] = replace(write, batches=batches)
        self._unapplied[path] = None
        self._known.add(write.until)
        self.changes += 1

    def unapplied(self) -> dict[str, Batches]:
        """Return the deletes in effect, by file, that may not have reached everything that is held."""
        return {path: self._served[path].batches for path in self._unapplied}

    def applied(self, paths: Iterable[str]) -> None:
        """The deletes in these files have reached everything that is held."""
        for path in paths:
            self._unapplied.pop(path, None)

    def of_later_rows(self, tick: Timestamp) -> Batches:
        """Return the deletes that may concern rows that are read from the log after ``tick``."""
        return tuple(batch for w in self._served.values() if w.until > tick for batch in w.batches)

    def in_effect(self) -> Batches:
        """Return the deletes that what was requested from an earlier target may lack."""
        return tuple(batch for w in self._served.values() for batch in w.batches)

    def forgotten(self, paths: Iterable[str]) -> list[str]:
        """Return those of the files whose deletes are not here."""
        return [path for path in paths if path not in self._waiting and path not in self._served]

    def forget(self, before: Timestamp) -> None:
        """Drop deletes in effect that concern nothing that is loaded, followed or read from ``before`` on."""
        kept = self._unserved.union(self._unapplied)
        self._served = {path: w for path, w in self._served.items() if w.until > before or path in kept}


def _served_by(request: WatchVchannel) -> set[Timestamp]:
    """Return the commits of writes that are served, of those with a moment."""
    return request.moments.keys() - {log.file.ts_max for log in request.unserved}


def read_write(store: ObjectStore, file: BinlogFile, moments: WriteMoments | None) -> Batches:
    """Read the deletes of a write. Raises `ObjectMissing`, `CorruptObject`."""
    found = deletes_of_delta_logs([read_delta_log(store, file)]).values()
    return tuple(replace(batch, moments=moments) for batch in found)

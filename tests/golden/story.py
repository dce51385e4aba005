"""The trace of a golden script's run: the log, the metadata and the answers, in a protocol's own words.

No timestamp, id or duration is printed. Writes are named in the order they come up in the log (w1, w2), and
so are definitions (d1), segments (s1), collections (c1), partitions (p1) and epochs (e1), and a tick is shown
by what it completes. So a script's output changes when the protocol does, and not when something takes a
millisecond more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.messages import DdlMessage, DeleteMessage, InsertMessage, MsgKind, UpsertMessage
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.vchannel_table import Vchannel
from elanus.log.codec import decode
from elanus.log.port import LogEntry
from elanus.meta.port import Delete, Put
from elanus.sim.truth import KEY, VALUE

_SEGMENTS = "datacoord/segment/"
_VCHANNELS = "datacoord/vchannel/"


class Names:
    """Small names for big numbers, in the order they are met."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._names: dict[int, str] = {}

    def of(self, number: int) -> str:
        return self._names.setdefault(number, f"{self._letter}{len(self._names) + 1}")

    def up_to(self, number: int) -> list[str]:
        return [name for known, name in self._names.items() if known <= number]


class Story:
    """``write`` gets each line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.writes = Names("w")
        self.segments = Names("s")
        self._ddls = Names("d")
        self._epochs = Names("e")
        self._partitions = Names("p")
        self._collections = Names("c")
        self._epoch: dict[str, int] = {}
        self._tick: dict[str, Timestamp] = {}
        self._open: dict[str, dict[Timestamp, str]] = {}
        self._states: dict[SegmentID, SegmentState] = {}
        self._checkpoints: dict[str, Timestamp] = {}
        self._on: dict[str, dict[Timestamp, str]] = {}

    def of_vchannel(self, vchannel: str) -> str:
        """Collection and shard, and the pchannel that carries it: ``c1/v0 on dml_0``."""
        pchannel, _, rest = vchannel.rpartition("_")
        collection, _, shard = rest.partition("v")
        return f"{self._collections.of(int(collection))}/v{shard} on {_short(pchannel)}"

    # the log

    def entry(self, pchannel: str, entry: LogEntry) -> None:
        header, where = entry.header, _short(pchannel)
        if header.kind is MsgKind.EPOCH:
            self._epoch[pchannel] = max(header.epoch, self._epoch.get(pchannel, 0))
            self._write(f"{where}: epoch {self._epochs.of(header.epoch)} begins")
        elif header.kind is MsgKind.TIME_TICK:
            self._take_tick(pchannel, header.epoch, header.ts)
        else:
            self._take_message(pchannel, entry)

    def _take_tick(self, pchannel: str, epoch: int, ts: Timestamp) -> None:
        where = _short(pchannel)
        if epoch < self._epoch.get(pchannel, 0):
            self._write(f"{where}: a tick of {self._epochs.of(epoch)}, which is over: ignored")
            return
        self._tick[pchannel] = max(ts, self._tick.get(pchannel, NO_TIMESTAMP))
        waiting = self._open.get(pchannel, {})
        complete = [waiting.pop(known) for known in sorted(waiting) if known <= ts]
        if complete:
            self._write(f"{where}: tick completes {_listed(complete)}")

    def _take_message(self, pchannel: str, entry: LogEntry) -> None:
        header, message = entry.header, decode(entry)
        what = self._what(message)
        if header.ts <= self._tick.get(pchannel, NO_TIMESTAMP):
            self._write(f"{_short(pchannel)}: {what}; it is behind its tick: late")
            return
        name = self._name(header.kind, header.ts)
        self._open.setdefault(pchannel, {})[header.ts] = name
        self._on.setdefault(header.vchannel, {})[header.ts] = name
        self._write(f"{_short(pchannel)}: {what}")

    def _name(self, kind: MsgKind, ts: Timestamp) -> str:
        is_write = kind in (MsgKind.INSERT, MsgKind.UPSERT, MsgKind.DELETE)
        return (self.writes if is_write else self._ddls).of(ts)

    def _what(self, message: object) -> str:
        match message:
            case InsertMessage() | UpsertMessage():
                keys, values = (message.rows.column(name).to_pylist() for name in (KEY, VALUE))
                rows = " ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True))
                kind = "insert" if isinstance(message, InsertMessage) else "upsert"
                place = self.segments.of(message.segment_id)
                return f"{self.writes.of(message.ts)} {kind} {rows} into {place}"
            case DeleteMessage():
                keys = " ".join(map(str, message.primary_keys.to_pylist()))
                return f"{self.writes.of(message.ts)} delete {keys}"
            case DdlMessage():
                kind = message.kind.name.lower().replace("_", " ")
                return f"{self._ddls.of(message.ts)} {kind} {self._of_ddl(message)}"
            case _:
                raise AssertionError(f"a message nobody has a word for: {message}")

    def _of_ddl(self, message: DdlMessage) -> str:
        collection = self._collections.of(message.collection_id)
        partition = f" {self._partitions.of(message.partition_id)}" if message.partition_id else ""
        return collection + partition

    # the metadata

    def record(self, operation: Put | Delete) -> None:
        if isinstance(operation, Delete):
            return
        if operation.key.startswith(_SEGMENTS):
            self._segment(msgspec.json.decode(operation.value, type=SegmentInfo))
        elif operation.key.startswith(_VCHANNELS):
            self._vchannel(msgspec.json.decode(operation.value, type=Vchannel))

    def _segment(self, info: SegmentInfo) -> None:
        if self._states.get(info.segment_id) is info.state:
            return
        self._states[info.segment_id] = info.state
        rows = f" with {info.rows} rows" if info.state is SegmentState.FLUSHED else ""
        self._write(f"datacoord: {self.segments.of(info.segment_id)} is {info.state.name.lower()}{rows}")

    def _vchannel(self, info: Vchannel) -> None:
        before = self._checkpoints.get(info.vchannel, NO_TIMESTAMP)
        self._checkpoints[info.vchannel] = info.checkpoint.ts
        covered = self._on.get(info.vchannel, {})
        new = [name for ts, name in sorted(covered.items()) if before < ts <= info.checkpoint.ts]
        if new:
            self._write(f"datacoord: checkpoint of {self.of_vchannel(info.vchannel)} covers {_listed(new)}")

    # names that scripts ask for

    def collection(self, collection_id: CollectionID) -> str:
        return self._collections.of(collection_id)

    def partition(self, partition_id: PartitionID) -> str:
        return self._partitions.of(partition_id)


def _short(pchannel: str) -> str:
    return "_".join(pchannel.rsplit("_", 2)[-2:]).rpartition("-")[2]


def _listed(names: Iterable[str]) -> str:
    return " ".join(names)

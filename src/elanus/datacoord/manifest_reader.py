"""Reading manifest objects: each once, cached while a record names it.

There are two kinds: a segment's manifest (its insert and stats logs) and a vchannel's list of delta logs.
Both are immutable objects; the metadata says which one is in force. The cache holds those in force
(`elanus.datacoord.path_uses.PathUses`), and for a moment those just written, which are about to be.

Nothing here is called under the role's lock: a store may take long. Readers get one moment's view without it
(`ManifestReader.current`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from elanus.core.batches import batched
from elanus.core.offload import Offload
from elanus.core.segments import DeltaLog, SegmentInfo, SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datacoord.vchannel_table import Vchannel
from elanus.storage.manifests import Found, find_delta_list, find_manifest
from elanus.storage.parallel import for_each
from elanus.storage.port import CorruptObject, ObjectMissing, ObjectStore

T = TypeVar("T")
Damage: TypeAlias = ObjectMissing | CorruptObject
_READS_AT_ONCE = 256
"""How many manifests one piece of blocking work reads: others get the thread in between."""
_WRITTEN_MAX = 8192


@dataclass(frozen=True, slots=True)
class Chosen:
    """Records whose manifests are wanted."""

    segments: Sequence[SegmentInfo]
    vchannels: Sequence[Vchannel] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """The objects that the records of one moment name, by path, see `of_segments` and `of_vchannel`.

    ``damaged``: those that cannot be read, each with the reason.
    """

    segments: dict[str, SegmentManifest] = field(default_factory=dict)
    deltas: dict[str, tuple[DeltaLog, ...]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    def of_segments(self, infos: Sequence[SegmentInfo]) -> tuple[SegmentManifest, ...]:
        return tuple(self.segments[info.manifest] if info.manifest else empty(info) for info in infos)

    def of_vchannel(self, vchannel: Vchannel) -> tuple[DeltaLog, ...]:
        return self.deltas[vchannel.deltas] if vchannel.deltas else ()


class ManifestReader:
    """Reads manifests. ``offload(function, *args)`` runs blocking I/O off the event loop.

    Implements `elanus.datacoord.path_uses.PathUses`.
    """

    def __init__(self, store: ObjectStore, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self._used: set[str] = set()
        self._segments: dict[str, SegmentManifest] = {}
        self._deltas: dict[str, tuple[DeltaLog, ...]] = {}
        self._written: dict[str, SegmentManifest | tuple[DeltaLog, ...]] = {}
        """The latest that were written here and are not in force, or not yet."""
        self._befores: dict[str, tuple[str, ...]] = {}
        """The damaged manifests that those in force continue."""

    # the cache

    def use(self, path: str) -> None:
        self._used.add(path)
        written = self._written.pop(path, None)
        if isinstance(written, SegmentManifest):
            self._segments[path] = written
        elif written is not None:
            self._deltas[path] = written

    def forget(self, path: str) -> None:
        self._used.discard(path)
        self._segments.pop(path, None)
        self._deltas.pop(path, None)
        self._befores.pop(path, None)

    def is_used(self, path: str) -> bool:
        """Whether a record in force names the path."""
        return path in self._used

    def befores(self, path: str) -> tuple[str, ...]:
        """Return the manifests that one continues, which has been read: they are needed as long as it is."""
        return self._befores.get(path, ())

    def __len__(self) -> int:
        """How many objects are cached."""
        return len(self._segments) + len(self._deltas) + len(self._written)

    def _remember_written(self, path: str, content: SegmentManifest | tuple[DeltaLog, ...]) -> None:
        self._written[path] = content
        while len(self._written) > _WRITTEN_MAX:
            del self._written[next(iter(self._written))]

    # reading

    async def current(
        self, choose: Callable[[], Chosen], *, skip_damaged: bool = False
    ) -> tuple[Chosen, Contents]:
        """Return what ``choose`` returns, and the contents of its manifests, as of one moment: the present,
        until the caller next waits.

        ``choose`` is called again after each wait for objects, until all that it chooses has been read.
        Raises what it raises, and `ObjectMissing` or `CorruptObject` unless ``skip_damaged``.
        """
        known = Contents()
        while True:
            chosen = choose()
            unread = _unread(_segment_paths(chosen), self._segments, known.segments, known.damaged)
            unread_deltas = _unread(_delta_paths(chosen), self._deltas, known.deltas, known.damaged)
            if not unread and not unread_deltas:
                return chosen, known
            faults = await self._read_segments(unread, known)
            faults |= await self._read_deltas(unread_deltas, known)
            if faults:
                # A record may name another manifest by now, and the one before may have been swept.
                again = choose()
                in_force = {*_segment_paths(again), *_delta_paths(again)}
                for path, error in faults.items():
                    if path in in_force and not skip_damaged:
                        raise error
                    known.damaged[path] = text_of(error)

    async def of_segment(self, info: SegmentInfo) -> SegmentManifest:
        """Return the manifest that the record names; an empty one before the first commit."""
        (found,) = await self.of_segments([info])
        return found

    async def of_segments(self, infos: Sequence[SegmentInfo]) -> tuple[SegmentManifest, ...]:
        _, contents = await self.current(lambda: Chosen(infos))
        return contents.of_segments(infos)

    async def of_vchannel(self, vchannel: Vchannel) -> tuple[DeltaLog, ...]:
        _, contents = await self.current(lambda: Chosen((), [vchannel]))
        return contents.of_vchannel(vchannel)

    async def _read_segments(self, paths: Sequence[str], known: Contents) -> dict[str, Damage]:
        """Read manifests into ``known``. Returns what could not be read."""
        faults: dict[str, Damage] = {}
        for some in batched(paths, _READS_AT_ONCE):
            read = await self._offload(for_each, self._store, _try_manifest, some)
            self._sort(dict(zip(some, read, strict=True)), known.segments, self._segments, faults)
        return faults

    async def _read_deltas(self, paths: Sequence[str], known: Contents) -> dict[str, Damage]:
        """As `_read_segments`, of lists of delta logs."""
        faults: dict[str, Damage] = {}
        if paths:
            read = await self._offload(for_each, self._store, _try_delta_list, paths)
            self._sort(dict(zip(paths, read, strict=True)), known.deltas, self._deltas, faults)
        return faults

    def _sort(
        self,
        read: dict[str, Found[T] | Damage],
        known: dict[str, T],
        cache: dict[str, T],
        faults: dict[str, Damage],
    ) -> None:
        for path, found in read.items():
            if isinstance(found, ObjectMissing | CorruptObject):
                faults[path] = found
                continue
            known[path] = found.content
            if path in self._used:
                cache[path] = found.content
                if found.befores:
                    self._befores[path] = found.befores


def _segment_paths(chosen: Chosen) -> list[str]:
    return [info.manifest for info in chosen.segments if info.manifest]


def _delta_paths(chosen: Chosen) -> list[str]:
    return [vchannel.deltas for vchannel in chosen.vchannels if vchannel.deltas]


def _unread(
    paths: list[str], cached: dict[str, T], known: dict[str, T], damaged: Container[str]
) -> list[str]:
    """Copy what is cached into ``known``; return the paths of which nothing is known, in order."""
    known.update({path: cached[path] for path in paths if path in cached})
    return sorted({path for path in paths if path not in known and path not in damaged})


def _try_manifest(store: ObjectStore, path: str) -> Found[SegmentManifest] | Damage:
    try:
        return find_manifest(store, path)
    except (ObjectMissing, CorruptObject) as error:
        return error


def _try_delta_list(store: ObjectStore, path: str) -> Found[tuple[DeltaLog, ...]] | Damage:
    try:
        return find_delta_list(store, path)
    except (ObjectMissing, CorruptObject) as error:
        return error


def text_of(error: Damage) -> str:
    """Return what is wrong with an object, with its name."""
    return f"{error}: no such object" if isinstance(error, ObjectMissing) else str(error)


def empty(info: SegmentInfo) -> SegmentManifest:
    """Return the manifest of a segment without any files."""
    return SegmentManifest(
        info.segment_id,
        info.collection_id,
        info.partition_id,
        info.vchannel,
        insert_logs=(),
        stats_logs=(),
        deletes_from=NO_TIMESTAMP,
        parents=info.compacted_from,
    )

"""Judges garbage collection: it deletes no referenced object, none too early, and leaves no garbage forever.

The object store reports what is deleted, the metadata store what is referenced. The judge derives references
from the records themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elanus.api.backups import copied_files
from elanus.api.connector import SNAPSHOTS
from elanus.core.errors import ElanusError
from elanus.core.gc import GcPolicy, expires_ms, keeps_files
from elanus.core.ids import SegmentID
from elanus.core.invariants import InvariantBroken
from elanus.core.pins import Pin, expired
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.datacoord.vchannel_table import Vchannel
from elanus.indexcoord.state import Build
from elanus.sim.records import Records
from elanus.sim.stores import MemoryStore
from elanus.storage.manifests import read_delta_list, read_manifest
from elanus.storage.paths import parse
from elanus.storage.snapshots import read_snapshot

Owner = SegmentInfo | Vchannel | Build
"""A record that says which files exist: of rows, of deletes, or of an index."""


class GarbageJudge:
    """``stamp`` gives a fresh timestamp, and raises `ElanusError` while there is none.

    ``latest_ms``: the latest time that the clock has shown by which pins expire. An expired pin keeps
    nothing, even when the clock is set back later: its files may have been deleted.
    """

    def __init__(
        self,
        records: Records,
        store: MemoryStore,
        stamp: Callable[[], Timestamp],
        latest_ms: Callable[[], int],
        policy: GcPolicy,
    ) -> None:
        self._policy = policy
        self._latest_ms = latest_ms
        self._records = records
        self._store = store
        self._stamp = stamp
        self._named: dict[str, frozenset[str]] = {}
        """Per manifest, the files it names and the manifest itself. Manifests never change."""
        self._wanted: tuple[int, frozenset[str]] = (0, frozenset())
        """The files of what is in force after so many changes of the records: a sweep deletes many objects
        between two of them."""

    def deleted(self, path: str) -> None:
        """Check an object that is about to be deleted. Raises `InvariantBroken`."""
        if path in self._files_in_force():
            user = next(user for user in self._in_force() if path in self._files_of(user))
            raise InvariantBroken("GC1", f"{path} is deleted, {_name(user)} is in force")
        for pin in self._live_pins():
            if path in self._files_of_pin(pin):
                raise InvariantBroken("GC1", f"{path} is deleted, and pin {pin.pin_id} is on it")
        name = parse(path)
        owner = None if name is None else self._dropped(name.owner)
        if owner is None or path not in self._files_of(owner):
            return
        try:
            now = self._stamp()
        except ElanusError:
            return
        if physical_ms(now) < expires_ms(owner.dropped, self._policy):
            raise InvariantBroken("GC2", f"{path} is deleted, its owner was dropped at {owner.dropped}")

    def recorded(self, owner: Owner | None) -> None:
        """Check that everything a newly written record refers to exists. Raises `InvariantBroken`.

        Once this has been checked, nothing it refers to can disappear unnoticed: `deleted` checks every
        deletion.
        """
        if owner is not None and _is_in_force(owner):
            self._check_present(owner)

    def check_present(self) -> None:
        """Check that every referenced object exists. Raises `InvariantBroken`."""
        for owner in self._in_force():
            self._check_present(owner)

    def _check_present(self, owner: Owner) -> None:
        missing = [path for path in self._files_of(owner) if path not in self._store]
        if missing:
            raise InvariantBroken("GC1", f"{_name(owner)} is in force, and names {sorted(missing)}")

    def garbage(self, now_ms: float) -> list[str]:
        """The objects that nothing refers to any more, except those modified later than ``now_ms``."""
        wanted = set(self._files_in_force())
        pins = self._records.pins.values()
        wanted |= {path for pin in pins for path in (pin.path, *self._files_of_pin(pin))}
        dropped = (s for s in self._records.segments.values() if s.lender and keeps_files(s))
        wanted |= {path for borrower in dropped for path in self._files_of(borrower)}
        ended = (v for v in self._records.vchannels.values() if v.lenders and v.dropped and v.deltas)
        wanted |= {path for borrower in ended for path in self._files_of(borrower)}
        left = []
        for info in self._store.list(""):
            if info.path in wanted or info.modified.timestamp() * 1000 >= now_ms:
                continue
            name = parse(info.path)
            if name is None or name.build_id or self._dropped(name.owner) is None:
                left.append(info.path)
        return left

    def _dropped(self, owner: str) -> SegmentInfo | Vchannel | None:
        """The owner, if it was dropped and its files are still recorded."""
        vchannel = self._records.vchannels.get(owner)
        if vchannel is not None:
            return vchannel if vchannel.dropped and vchannel.deltas else None
        if not owner.isdigit():
            return None
        info = self._records.segments.get(SegmentID(int(owner)))
        return info if info is not None and keeps_files(info) else None

    def _in_force(self) -> Iterator[Owner]:
        yield from filter(_is_in_force, self._records.segments.values())
        yield from filter(_is_in_force, self._records.vchannels.values())
        yield from filter(_is_in_force, self._records.builds.values())

    def _files_in_force(self) -> frozenset[str]:
        changes, files = self._wanted
        if changes != self._records.changes:
            files = frozenset().union(*map(self._files_of, self._in_force()))
            self._wanted = self._records.changes, files
        return files

    def _files_of(self, owner: Owner) -> frozenset[str]:
        if isinstance(owner, Build):
            return frozenset() if owner.file is None else frozenset({owner.file.path})
        manifest = _manifest(owner)
        if manifest not in self._named:
            read = self._of_deltas if isinstance(owner, Vchannel) else self._of_segment
            self._named[manifest] = read(manifest) | {manifest}
        return self._named[manifest]

    def _live_pins(self) -> list[Pin]:
        """The pins that keep their files. One that is held for an unfinished clone does not expire."""
        pins = self._records.pins.values()
        over = {pin.pin_id for pin in expired(pins, self._latest_ms()) if not pin.clones}
        return [pin for pin in pins if pin.pin_id not in over]

    def _files_of_pin(self, pin: Pin) -> frozenset[str]:
        """The files that a pin keeps; none once its release has begun, which deletes the snapshot first."""
        if pin.path not in self._named:
            if pin.path not in self._store:
                return frozenset()
            snapshot = read_snapshot(_Peeking(self._store), pin.path, SNAPSHOTS)  # type: ignore[arg-type]
            self._named[pin.path] = frozenset(path for path, _ in copied_files(snapshot))
        return self._named[pin.path] if pin.path in self._store else frozenset()

    def _of_segment(self, path: str) -> frozenset[str]:
        manifest = read_manifest(_Peeking(self._store), path)  # type: ignore[arg-type]
        return frozenset({*(f.path for f in manifest.insert_logs), *manifest.stats_logs})

    def _of_deltas(self, path: str) -> frozenset[str]:
        logs = read_delta_list(_Peeking(self._store), path)  # type: ignore[arg-type]
        return frozenset(log.file.path for log in logs)


def _manifest(owner: SegmentInfo | Vchannel) -> str:
    return owner.deltas if isinstance(owner, Vchannel) else owner.manifest


def _name(owner: Owner) -> str:
    return f"index build {owner.build_id}" if isinstance(owner, Build) else _manifest(owner)


def _is_in_force(owner: Owner) -> bool:
    """Whether the owner's manifest, or a build's record, currently says which files exist."""
    if isinstance(owner, Build):
        return owner.file is not None
    if isinstance(owner, Vchannel):
        return bool(owner.deltas) and not owner.dropped
    return bool(owner.manifest) and owner.state is not SegmentState.DROPPED


class _Peeking:
    """The part of a store that reading a manifest needs, without faults."""

    def __init__(self, store: MemoryStore) -> None:
        self.get = store.peek

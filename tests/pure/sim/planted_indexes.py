"""Planted bugs in what keeps index files: pins, clones, and garbage collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from elanus.api.indexcoord import IndexReferences
from elanus.core.gc import SweepRules
from elanus.core.path_digests import PathDigests
from elanus.core.pins import Pin
from elanus.core.segments import IndexFile
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.pins import Pins
from elanus.datacoord.references import References
from elanus.datacoord.snapshot_files import SnapshotFiles
from elanus.indexcoord.coord import IndexCoord
from elanus.storage.paths import INDEX_FILES, PREFIXES, parse

SEEDS, FIRST = 12, 32


def restore_forgets_its_index_files(patch: pytest.MonkeyPatch) -> None:
    """The pin of a restore keeps the files of rows and deletes only."""
    files_of = Pins._files_of

    async def forgetful(self: Pins, pin: Pin) -> SnapshotFiles:
        files = await files_of(self, pin)
        if not pin.received:
            return files
        rows = [
            {prefix: d} for prefix in PREFIXES if prefix != INDEX_FILES for d in files.paths.within(prefix)
        ]
        return replace(files, paths=PathDigests(rows))

    patch.setattr(Pins, "_files_of", forgetful)


def shared_index_files_ignored(patch: pytest.MonkeyPatch) -> None:
    """Garbage collection counts an index file as in use only by the build that wrote it."""
    asked = IndexCoord.index_references

    async def own(self: IndexCoord) -> IndexReferences:
        answer = await asked(self)
        built = {str(build.build_id) for build in self._state.builds() if build.file is not None}
        return replace(answer, files=tuple(f for f in answer.files if _writer(f) in built))

    patch.setattr(IndexCoord, "index_references", own)


def _writer(path: str) -> str:
    name = parse(path)
    return "" if name is None else str(name.build_id)


def missing_index_files_borrowed(patch: pytest.MonkeyPatch) -> None:
    """A clone takes index files without a look at whether they are there."""

    async def all_of(self: Manifests, files: Sequence[IndexFile]) -> tuple[IndexFile, ...]:
        return tuple(files)

    patch.setattr(Manifests, "present", all_of)


def index_files_not_swept(patch: pytest.MonkeyPatch) -> None:
    """Garbage collection leaves index files out."""
    rules = References.rules

    async def without_them(*args: Any, **kwargs: Any) -> dict[str, SweepRules]:
        found = await rules(*args, **kwargs)
        del found[INDEX_FILES]
        return found

    patch.setattr(References, "rules", without_them)


_LOST = frozenset({"GC1"})
BUGS: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], frozenset[str], int, int], ...] = (
    ("restore forgets its index files", restore_forgets_its_index_files, _LOST, SEEDS, 48),
    ("shared index files ignored", shared_index_files_ignored, _LOST, SEEDS, FIRST),
    ("missing index files borrowed", missing_index_files_borrowed, _LOST, SEEDS, FIRST),
    ("index files not swept", index_files_not_swept, frozenset({"GC3"}), SEEDS, 1),
)
"""Name, patch, the invariants under which it counts as found, how many seeds it may take, and the first."""

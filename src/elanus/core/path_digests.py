"""Sets of paths of which only digests are kept: eight bytes a path.

A hash collision makes a set contain a path too many: garbage collection then keeps an extra file, and never
deletes a referenced one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import groupby

import numpy as np
import numpy.typing as npt

_DIGEST = np.dtype("<u8")


def digests(paths: Iterable[str], known: Iterable[bytes] = ()) -> bytes:
    """Return the paths as sorted 64-bit digests of eight bytes each. ``known``: earlier results to add."""
    found = [_digests(paths), *(np.frombuffer(one, _DIGEST) for one in known)]
    return np.unique(np.concatenate(found)).tobytes()


class NamedPaths:
    """Looks up paths in the result of `digests`."""

    def __init__(self, named: bytes) -> None:
        self._sorted = np.frombuffer(named, _DIGEST)

    def of(self, paths: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return for each path whether it is among them."""
        wanted = _digests(paths)
        if not len(self._sorted):
            return np.zeros(len(wanted), np.bool_)
        at = np.searchsorted(self._sorted, wanted)
        found: npt.NDArray[np.bool_] = self._sorted[np.minimum(at, len(self._sorted) - 1)] == wanted
        return found


class PathDigests:
    """A set of paths, by prefix. It never changes; a union shares the digests of its parts."""

    def __init__(self, parts: Iterable[Mapping[str, bytes]] = ()) -> None:
        self._parts = {id(part): part for part in parts}

    @classmethod
    def of(cls, paths: Iterable[str]) -> PathDigests:
        """Return the set of these paths. Takes about a microsecond a path."""
        by_prefix = groupby(sorted(paths), _prefix)
        return cls([{prefix: digests(some) for prefix, some in by_prefix}])

    def __or__(self, other: PathDigests) -> PathDigests:
        return PathDigests.union((self, other))

    def __contains__(self, path: str) -> bool:
        return any(NamedPaths(named).of([path])[0] for named in self.within(_prefix(path)))

    def __bool__(self) -> bool:
        return any(map(any, (part.values() for part in self._parts.values())))

    @classmethod
    def union(cls, sets: Iterable[PathDigests]) -> PathDigests:
        return cls(part for one in sets for part in one._parts.values())

    def within(self, prefix: str) -> list[bytes]:
        """Return the `digests` of the paths below a prefix, in parts that may have paths in common."""
        return [part[prefix] for part in self._parts.values() if prefix in part]


def _prefix(path: str) -> str:
    return path.partition("/")[0]


def _digests(paths: Iterable[str]) -> npt.NDArray[np.uint64]:
    joined = b"".join(blake2b(path.encode(), digest_size=_DIGEST.itemsize).digest() for path in paths)
    return np.frombuffer(joined, _DIGEST)

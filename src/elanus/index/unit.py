"""Unit vectors for COSINE, and the restoration of the client's vectors, bit for bit.

An index that compares by cosine stores unit vectors, and clients may ask for their vectors back. Keeping
the originals too would double the memory, so only the norm of each row and its rounding errors are kept:
``w = float32(v / |v|)`` and ``r = float32(w · |v|)`` differ from ``v`` by at most one step in the last
place (v / |v| is rounded by at most 2⁻²⁴ of itself, which is at most one step of v; the norm and the
product are float64). That step, -1, 0 or 1, takes two bits per component: 6 % of the vectors.

If a component is so much smaller than the norm that its unit value underflows, it cannot be restored.
`UnitRows.lossless` is then False, and the index does not offer its vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Norms = npt.NDArray[np.float64]
Packed = npt.NDArray[np.uint8]
RowIds = npt.NDArray[np.int64]

_PER_BYTE = 4
_SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)


def norms_of(vectors: Floats) -> Norms:
    """Return the Euclidean length of each row, without overflow or underflow. (n, d) → float64 (n,)."""
    squares: Norms = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return np.sqrt(squares, out=squares)


def divided(vectors: Floats, norms: Norms) -> Floats:
    """Return the vectors at length one; zero vectors stay zero. A new array."""
    safe = np.where(norms > 0, norms, 1.0)
    return np.divide(vectors, safe[:, None], out=np.empty_like(vectors), casting="same_kind")


def unit(vectors: Floats) -> Floats:
    """The vectors at length one; zero vectors stay zero. A new array."""
    return divided(vectors, norms_of(vectors))


@dataclass(frozen=True)
class UnitRows:
    """How to undo `unit` for the rows of an index.

    ``norms``: float64 (n,). ``steps``: uint8 (n, ceil(d / 4)), four two-bit steps (plus one) per byte.
    """

    norms: Norms
    steps: Packed
    lossless: bool

    @property
    def memory_bytes(self) -> int:
        return self.norms.nbytes + self.steps.nbytes

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to store in an index file; `from_arrays` reads them back."""
        return {"norms": self.norms, "steps": self.steps, "lossless": np.array([self.lossless])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> UnitRows | None:
        """Read the arrays of an index file; None if the file does not hold unit vectors."""
        if "norms" not in arrays:
            return None
        return cls(arrays["norms"], arrays["steps"], bool(arrays["lossless"][0]))

    def restored(self, units: Floats, rows: RowIds) -> Floats:
        """Restore the original vectors of these rows from their unit vectors. (m, d), (m,) → (m, d)."""
        rounded = _rounded(units, self.norms[rows])
        steps = _unpack(self.steps[rows], units.shape[1])
        return (rounded.view(np.int32) + steps).view(np.float32)


def split(vectors: Floats) -> tuple[Floats, UnitRows]:
    """Split vectors into unit vectors and the data to restore the originals."""
    norms = norms_of(vectors)
    units = divided(vectors, norms)
    away = vectors.view(np.int32) - _rounded(units, norms).view(np.int32)
    lossless = bool((np.abs(away) <= 1).all())
    return units, UnitRows(norms, _pack(np.clip(away, -1, 1)), lossless)


def joined(parts: list[UnitRows]) -> UnitRows:
    """Concatenate the rows of several parts."""
    return UnitRows(
        np.concatenate([p.norms for p in parts]),
        np.concatenate([p.steps for p in parts]),
        all(p.lossless for p in parts),
    )


def _rounded(units: Floats, norms: Norms) -> Floats:
    return np.multiply(units, norms[:, None], out=np.empty_like(units), casting="same_kind")


def _pack(steps: npt.NDArray[np.int32]) -> Packed:
    rows, dim = steps.shape
    codes = np.ones((rows, -(-dim // _PER_BYTE) * _PER_BYTE), dtype=np.uint8)
    codes[:, :dim] = steps + 1
    packed: Packed = np.bitwise_or.reduce(codes.reshape(rows, -1, _PER_BYTE) << _SHIFTS, axis=2)
    return packed


def _unpack(packed: Packed, dim: int) -> npt.NDArray[np.int32]:
    codes = (packed[:, :, None] >> _SHIFTS) & 3
    return codes.reshape(len(packed), -1)[:, :dim].astype(np.int32) - 1

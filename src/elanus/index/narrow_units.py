"""Narrow vectors under COSINE: unit vectors in the width of the sent ones, and the way back.

A graph walks by the inner product of what its storage holds, as lists are scanned, and under COSINE that must
be vectors of one length. Vectors of 16 bits or of bytes are therefore scaled to one length and rounded to
their own width again. The rounding loses something, so each row also keeps its norm, and a few bits per
component that say which value was sent. Scores are those of the restored vectors, exactly.

16 bits
    ``w = round(v / |v| · scale)``; ``round(w / scale · |v|)`` is at most one step of the type away from v:
    two bits say which. The scale lets small components of float16 keep their digits.
bytes
    ``w = round(v / |v| · scale)`` with the largest scale that fits a byte. The whole numbers that give w are
    consecutive: one bit says which of two it was, or two bits which of four. That suffices unless the lengths
    of the rows differ by more than a factor of two, or four; then `of` returns None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.types import Matrix
from elanus.index.decoded_rows import DecodedRows, parts
from elanus.index.exact import Block
from elanus.index.float_rows import Floats
from elanus.index.hits import RowIds
from elanus.index.unit import norms_of

_SCALES = {"float16": 2.0**15, "bfloat16": 1.0}
_BYTE_MAX = 127
_NEARLY = 1e-6
"""Rounding must not exclude a number that is exactly half way."""

Steps = npt.NDArray[np.int32]
Planes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class NarrowUnits:
    """How unit vectors in ``dtype`` are made, and undone.

    ``norms``: float32 (n,), of the sent vectors. ``planes``: uint8 (n, bits · ceil(d / 8)), the bits that say
    which value was sent. ``scale``: of the unit vectors.
    """

    dtype: np.dtype[Any]
    norms: Floats
    planes: Planes
    scale: float

    @classmethod
    def of(cls, vectors: Matrix) -> NarrowUnits | None:
        """For these vectors (n, d); None if they cannot be restored from vectors as narrow."""
        norms = np.concatenate([_norms(vectors[part]) for part in parts(len(vectors))])
        scale = _SCALES.get(vectors.dtype.name) or _byte_scale(vectors, norms)
        bare = cls(vectors.dtype, norms, np.empty((len(vectors), 0), np.uint8), scale)
        steps_max, steps_min = 0, 0
        for part in parts(len(vectors)):
            steps = bare._steps(vectors[part], norms[part])
            steps_max, steps_min = max(steps_max, int(steps.max())), min(steps_min, int(steps.min()))
        bits = 1 if steps_max < 2 else 2
        if steps_min < 0 or steps_max >= 1 << bits:
            return None
        planes = [_packed(bare._steps(vectors[part], norms[part]), bits) for part in parts(len(vectors))]
        return cls(vectors.dtype, norms, np.concatenate(planes), scale)

    @property
    def memory_bytes(self) -> int:
        return self.norms.nbytes + self.planes.nbytes

    @property
    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays to store in an index file."""
        return {"unit_norms": self.norms, "unit_planes": self.planes, "unit_scale": np.array([self.scale])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], dtype: np.dtype[Any]) -> NarrowUnits | None:
        """Read the arrays of an index file; None if the file does not hold such vectors."""
        if "unit_norms" not in arrays:
            return None
        return cls(dtype, arrays["unit_norms"], arrays["unit_planes"], float(arrays["unit_scale"][0]))

    def units(self, vectors: Matrix, part: slice) -> Floats:
        """Return the unit vectors of some rows, times the scale, rounded. (m, d) → float32 (m, d)."""
        return self._units(vectors, self.norms[part])

    def restored(self, units: Floats, rows: Block) -> Matrix:
        """Return the sent vectors of these rows from their scaled unit vectors. (m, d) → (m, d) of the
        type."""
        steps = _unpacked(self.planes[rows], units.shape[1])
        return self._moved(units, self.norms[rows], steps)

    def _units(self, vectors: Matrix, norms: Floats) -> Floats:
        scaled = vectors.astype(np.float32) * _inverse(norms, self.scale)[:, None]
        rounded: Floats = np.rint(scaled) if self.dtype == np.int8 else scaled.astype(self.dtype)
        return rounded.astype(np.float32, copy=False)

    def _steps(self, vectors: Matrix, norms: Floats) -> Steps:
        """Return how many steps each component is from the least value that it may have had."""
        least = self._least(self._units(vectors, norms), norms)
        if self.dtype == np.int8:
            return vectors.astype(np.int32) - least.astype(np.int32)
        return vectors.view(np.int16).astype(np.int32) - least.view(np.int16) + 1

    def _moved(self, units: Floats, norms: Floats, steps: Steps) -> Matrix:
        least = self._least(units, norms)
        if self.dtype == np.int8:
            return (least.astype(np.int32) + steps).astype(np.int8)
        return (least.view(np.int16).astype(np.int32) + steps - 1).astype(np.int16).view(self.dtype)

    def _least(self, units: Floats, norms: Floats) -> Matrix:
        """Bytes: the least whole number that gives the unit. 16 bits: the middle one of three."""
        widths = (norms / np.float32(self.scale))[:, None]
        if self.dtype == np.int8:
            return np.ceil((units.astype(np.float64) - 0.5) * widths - _NEARLY)
        found: Matrix = (units * widths).astype(self.dtype)
        return found


class NarrowUnitRows(DecodedRows):
    """The sent vectors behind the codes of their unit vectors, which a graph or lists hold."""

    def __init__(self, codes: DecodedRows, units: NarrowUnits) -> None:
        super().__init__(codes.count, codes.dim, Metric.COSINE)
        self._codes = codes
        self._units = units

    @property
    def memory_bytes(self) -> int:
        return self._units.memory_bytes  # the index counts the codes

    def taken(self, rows: RowIds) -> Matrix:
        return self._units.restored(self._codes.compared(rows), rows)

    def compared(self, block: Block) -> Floats:
        vectors: Floats = self._units.restored(self._codes.compared(block), block).astype(np.float32)
        vectors *= _inverse(self._units.norms[block], 1.0)[:, None]
        return vectors


def _norms(vectors: Matrix) -> Floats:
    return norms_of(vectors.astype(np.float32)).astype(np.float32)


def _inverse(norms: Floats, numerator: float) -> Floats:
    return np.divide(numerator, norms, out=np.zeros_like(norms), where=norms > 0)


def _byte_scale(vectors: Matrix, norms: Floats) -> float:
    """Return the largest scale at which every component of a unit vector fits a byte."""
    largest = 0.0
    for part in parts(len(vectors)):
        peaks = np.abs(vectors[part].astype(np.float32)).max(axis=1)
        largest = max(largest, float((peaks * _inverse(norms[part], 1.0)).max()))
    return _BYTE_MAX / largest if largest else 1.0


def _packed(steps: Steps, bits: int) -> Planes:
    planes = [np.packbits((steps >> bit & 1).astype(np.bool_), axis=1) for bit in range(bits)]
    return np.concatenate(planes, axis=1)


def _unpacked(planes: Planes, dim: int) -> Steps:
    width = -(-dim // 8)
    steps = np.zeros((len(planes), dim), dtype=np.int32)
    for bit in range(planes.shape[1] // width):
        of_bit = planes[:, bit * width : (bit + 1) * width]
        steps |= np.unpackbits(of_bit, axis=1, count=dim).astype(np.int32) << bit
    return steps

"""RTREE: the bounds of geometries in a tree of rectangles.

The tree is packed and never changes: the bounds are sorted into tiles, first by x, then by y
(sort-tile-recursive, Leutenegger et al., 1997). Every ``FANOUT`` of them in a row share a rectangle of the
level above, up to a level of at most ``FANOUT``. So a level is one array, the number of a rectangle gives its
children, and a search handles a whole level at once. Nothing is parsed when the index is loaded.

The bounds of an empty geometry are unknown: its row is found always. A distance is looked up among points;
other geometries are found always, too (`elanus.core.lookup.Near`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.geometry import Boxes, apart, boxes_of, is_point
from elanus.core.lookup import Found, Lookup, Near, RowNumbers
from elanus.index.base import ScalarIndex
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.spec import IndexSpec, Progress

FANOUT = 16

RowNumberArray = npt.NDArray[np.uint32]


class Rectangles(ScalarIndex):
    """Rows by the bounds of their geometries.

    ``levels``: the bounds of the geometries in the order of the tree, (n, 4), then ever fewer rectangles.
    ``numbers``: the row of each of the n; ``shapes``: the rows with bounds that are no point's, ascending;
    ``empty``: the rows of empty geometries. All of them uint32.
    """

    def __init__(
        self,
        spec: IndexSpec,
        rows: int,
        levels: list[Boxes],
        numbers: RowNumberArray,
        shapes: RowNumberArray,
        empty: RowNumberArray,
    ) -> None:
        super().__init__(spec, rows)
        self._levels = levels
        self._numbers = numbers
        self._shapes = shapes
        self._empty = empty

    @classmethod
    def of(cls, spec: IndexSpec, column: pa.Array, progress: Progress) -> Rectangles:
        """``column``: WKB, ``binary``."""
        boxes = boxes_of(column)
        is_known = ~np.isnan(boxes).any(axis=1)
        is_valid = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = np.flatnonzero(is_known).astype(np.uint32)
        boxes = boxes[is_known]
        shapes = numbers[~is_point(boxes)]
        order = _tiled(boxes)
        levels = [boxes[order]]
        while len(levels[-1]) > FANOUT:
            levels.append(_parents(levels[-1]))
        empty = np.flatnonzero(is_valid & ~is_known).astype(np.uint32)
        return cls(spec, len(column), levels, numbers[order], shapes, empty)

    @property
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        levels = {f"level_{height}": boxes for height, boxes in enumerate(self._levels)}
        return {**levels, "numbers": self._numbers, "shapes": self._shapes, "empty": self._empty}

    @property
    def memory_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, self._arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> Rectangles:
        arrays = content.arrays
        height = sum(name.startswith("level_") for name in arrays)
        levels = [arrays[f"level_{number}"] for number in range(height)]
        return cls(spec, content.rows, levels, arrays["numbers"], arrays["shapes"], arrays["empty"])

    def estimate(self, lookup: Lookup) -> int | None:
        """Return a bound from the rectangles above the rows' own."""
        if not isinstance(lookup, Near):
            return None
        others = len(self._shapes) if lookup.of_points else 0
        below = len(self._candidates(lookup.box))
        return min(self.rows, below + others + len(self._empty))

    def find(self, lookup: Lookup) -> Found | None:
        if not isinstance(lookup, Near):
            return None
        places = self._candidates(lookup.box)
        near = self._numbers[places[~apart(self._levels[0][places], lookup.box)]]
        if lookup.of_points:
            near = np.union1d(near, self._shapes)
        return RowNumbers(np.concatenate((near, self._empty)))

    def _candidates(self, box: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the places of the lowest level whose parents have a point in common with the box."""
        places = np.arange(len(self._levels[-1]))
        for height in range(len(self._levels) - 1, 0, -1):
            places = places[~apart(self._levels[height][places], box)]
            children = (places[:, None] * FANOUT + np.arange(FANOUT)).ravel()
            places = children[children < len(self._levels[height - 1])]
        return places


def _tiled(boxes: Boxes) -> npt.NDArray[np.intp]:
    """Return an order of the boxes in which neighbors are close to each other: tiles of a grid."""
    with np.errstate(over="ignore", invalid="ignore"):
        x, y = boxes[:, 0] + boxes[:, 2], boxes[:, 1] + boxes[:, 3]
    tiles = -(-len(boxes) // FANOUT)
    stripe = FANOUT * max(1, int(np.ceil(np.sqrt(tiles))))
    by_x = np.argsort(x, kind="stable")
    number = np.empty(len(boxes), np.int64)
    number[by_x] = np.arange(len(boxes)) // stripe
    return np.lexsort((y, number))


def _parents(boxes: Boxes) -> Boxes:
    """Return the rectangles around every ``FANOUT`` boxes in a row."""
    starts = np.arange(0, len(boxes), FANOUT)
    low = np.minimum.reduceat(boxes[:, :2], starts, axis=0)
    high = np.maximum.reduceat(boxes[:, 2:], starts, axis=0)
    return np.hstack((low, high))

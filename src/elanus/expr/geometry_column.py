"""A column of geometries with their bounds, which let a filter skip most rows without parsing them."""

from __future__ import annotations

import threading

import pyarrow as pa

from elanus.core.geometry import Boxes, boxes_of


class GeometryColumn:
    """A column of geometries that keeps their bounds, 32 bytes for each row, from the first time they are
    wanted. Threads may share it."""

    def __init__(self, values: pa.Array) -> None:
        """``values``: WKB, ``binary``."""
        self.values = values
        self._boxes: Boxes | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def boxes(self) -> Boxes:
        with self._lock:
            if self._boxes is None:
                self._boxes = boxes_of(self.values)
            return self._boxes

    @property
    def has_boxes(self) -> bool:
        """Whether the bounds are known already."""
        return self._boxes is not None

    @property
    def cached_bytes(self) -> int:
        boxes = self._boxes
        return 0 if boxes is None else boxes.nbytes

"""Memory and disk that segments take, as sums: of what is loaded, and of what somebody plans.

`segment_memory_bytes` decides whether a load fits; an estimate uses the same sum, so a load that is refused
shows the figure that was estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

SYSTEM_ROW_BYTES = 16
"""Row id and timestamp."""


def segment_memory_bytes(
    *,
    rows: int,
    vector_row_bytes: int,
    insert_log_bytes: int,
    vector_index_bytes: int = 0,
    scalar_index_bytes: int = 0,
    index_disk_bytes: int = 0,
) -> int:
    """Return the memory that a load counts for a segment.

    Its vectors once, in the index or next to it, its other indexes, and its insert logs.
    ``vector_index_bytes``: of the index files of vectors, with the ``index_disk_bytes`` that stay on disk.
    """
    in_memory = vector_index_bytes - index_disk_bytes
    vectors = max(in_memory, rows * vector_row_bytes - index_disk_bytes)
    return vectors + scalar_index_bytes + max(0, insert_log_bytes - index_disk_bytes)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """A segment as it is planned. Bytes per row: ``vector_row_bytes`` of the vector, ``other_row_bytes`` of
    the other fields, the primary key included. ``build_s``: of the index, on one core."""

    rows: int
    vector_row_bytes: int
    other_row_bytes: int
    index_memory_bytes: int
    index_file_bytes: int
    index_disk_bytes: int
    build_s: float = 0.0

    @property
    def insert_log_bytes(self) -> int:
        """The rows in Parquet, without compression."""
        return self.rows * (self.vector_row_bytes + self.other_row_bytes + SYSTEM_ROW_BYTES)

    @property
    def load_bytes(self) -> int:
        """The memory that a query node must have free for it."""
        return segment_memory_bytes(
            rows=self.rows,
            vector_row_bytes=self.vector_row_bytes,
            insert_log_bytes=self.insert_log_bytes,
            vector_index_bytes=self.index_file_bytes,
            index_disk_bytes=self.index_disk_bytes,
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Totals of a collection in bytes.

    ``index_memory_bytes``: of the indexes of one replica; ``load_bytes``: what query nodes must have free for
    all replicas; ``node_disk_bytes``: what stays on their disks. ``insert_log_bytes`` and
    ``index_file_bytes``: in the object store. ``build_s``: to build all indexes on one core, one after the
    other.
    """

    rows: int
    segments: int
    index_memory_bytes: int
    load_bytes: int
    node_disk_bytes: int
    insert_log_bytes: int
    index_file_bytes: int
    build_s: float = 0.0

    @property
    def object_bytes(self) -> int:
        return self.insert_log_bytes + self.index_file_bytes


def total(full: SegmentPlan, full_count: int, last: SegmentPlan | None, replicas: int) -> Estimate:
    """Return the sums over ``full_count`` segments like ``full``, and a smaller last one if there is one."""
    plans = [(full, full_count)] if last is None else [(full, full_count), (last, 1)]
    return Estimate(
        rows=sum(plan.rows * count for plan, count in plans),
        segments=sum(count for _, count in plans),
        index_memory_bytes=sum(plan.index_memory_bytes * count for plan, count in plans),
        load_bytes=replicas * sum(plan.load_bytes * count for plan, count in plans),
        node_disk_bytes=replicas * sum(plan.index_disk_bytes * count for plan, count in plans),
        insert_log_bytes=sum(plan.insert_log_bytes * count for plan, count in plans),
        index_file_bytes=sum(plan.index_file_bytes * count for plan, count in plans),
        build_s=sum(plan.build_s * count for plan, count in plans),
    )

"""Which reads are so little work that they are done where they are.

A read from a query channel is answered in a thread, so that the loop goes on taking ticks and other reads.
To hand it to a thread and its answer back takes a processor longer than to search some thousand rows, and
where several processes share one it takes longer still. So a small search is answered on the loop, in less
time than the loop is held up by many other things it does.

Small is what is bounded by what the snapshot says: plain comparisons of vectors, and values that are in
memory. A filter's first evaluation may cost any amount per row, and vectors may have to be fetched from
the object store: those go to a thread.
"""

from __future__ import annotations

from elanus.querynode.snapshot import Snapshot
from elanus.rpc.querynode import NodeSearch
from elanus.rpc.reads import Read

SMALL_VALUES_MAX = 1 << 21
"""Numbers that a search compares: about half a millisecond of one processor, where they are in its cache."""


def is_small(snapshot: Snapshot, read: Read) -> bool:
    """Whether the read ends so soon that a thread is not worth its while."""
    if not isinstance(read, NodeSearch) or not read.filter.matches_all:
        return False
    if any(snapshot.schema.by_name[name].data_type.is_vector for name in read.output_fields):
        return False
    values_per_row = len(read.queries) * snapshot.schema.by_id[read.field_id].dim
    rows_max = SMALL_VALUES_MAX // max(1, values_per_row)
    return _rows(snapshot) <= rows_max


def _rows(snapshot: Snapshot) -> int:
    return sum(block.rows for segment in snapshot.segments for block in segment.blocks)

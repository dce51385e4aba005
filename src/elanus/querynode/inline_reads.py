"""Which reads are small enough to be answered on the event loop.

A read from a query channel is normally answered in a thread, so that the loop can continue with ticks and
other reads. Passing it to a thread and passing the answer back takes more processor time than searching some
thousand rows, and even more where several processes share a processor. So a small search is answered on the
loop, which it blocks for less time than many other things that the loop does.

A read is small if the snapshot bounds its cost: plain comparisons of vectors, and values that are in memory.
A filter's first evaluation may cost any amount per row, a row of a struct array has any number of vectors,
the vectors of new rows may have to be computed from their texts, and vectors may have to be fetched from the
object store: such reads run in a thread.
"""

from __future__ import annotations

from elanus.api.querynode import NodeSearch
from elanus.channels.read_codec import NodeProbe, Read
from elanus.core.metrics import TRUTH
from elanus.querynode.snapshot import Snapshot

SMALL_VALUES_MAX = 1 << 21
"""Numbers that a search compares: about half a millisecond on one processor, if they are in its cache."""


def is_small(snapshot: Snapshot, read: Read) -> bool:
    """Whether the read is so short that running it in a thread does not pay."""
    if isinstance(read, NodeProbe):
        return True
    if not isinstance(read, NodeSearch) or not read.filter.matches_all:
        return False
    if read.grouping is not None or read.boosts is not None or read.chains is not None:
        return False
    unloaded = snapshot.unloaded.fields
    if unloaded and (
        read.field_id not in snapshot.schema.by_id or not unloaded.keys().isdisjoint(read.output_fields)
    ):
        return False
    if any(snapshot.schema.by_name[name].is_searched for name in read.output_fields):
        return False
    field = snapshot.schema.by_id[read.field_id]
    if field.has_vector_lists or not field.vector.has_dim:  # a new block's postings are made first
        return False
    if snapshot.schema.function_of(field) is not None or TRUTH in read.params:
        return False
    values_per_row = len(read.queries) * field.dim
    rows_max = SMALL_VALUES_MAX // max(1, values_per_row)
    return _rows(snapshot) <= rows_max


def _rows(snapshot: Snapshot) -> int:
    return sum(block.rows for segment in snapshot.segments for block in segment.blocks)

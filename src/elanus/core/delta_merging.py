"""Which delta logs of a vchannel to merge into one.

Each flush of a vchannel with deletes adds a delta log, and each is read by every load of a segment, is listed
in every commit, and stays until no segment needs it: for the retention time at least. Merged delta logs have
the same rows with the same timestamps, so a read as of any moment finds the same deletes.

A delta log is folded in and forgotten as a whole, by its latest delete. So delta logs that may be folded in
by now are not merged with later ones, and a merged delta log spans only a part of the retention time. One
with more than half of the bytes is left out: each delete is rewritten a few times, however many delta logs
come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from elanus.core.segments import DeltaLog
from elanus.core.timestamps import Timestamp, physical_ms

MERGED_BYTES_MAX = 32 << 20
_SPANS_IN_RETENTION = 8


def choose_deltas(
    deltas: Iterable[DeltaLog], bound: Timestamp, retention_s: float, count_min: int
) -> tuple[DeltaLog, ...]:
    """Return the delta logs of a vchannel to merge into one, the oldest that are worth it; none if none are.

    ``bound``: the result of `elanus.core.compaction.fold_bound`. ``count_min``: how many are worth it.
    """
    ordered = sorted(deltas, key=lambda delta: (delta.file.ts_max, delta.file.path))
    old = [delta for delta in ordered if delta.file.ts_max <= bound]
    recent = [delta for delta in ordered if delta.file.ts_max > bound]
    span_max_ms = retention_s * 1000 / _SPANS_IN_RETENTION
    for run in (*_runs(old, float("inf")), *_runs(recent, span_max_ms)):
        for part in _without_large(run):
            if len(part) >= max(2, count_min):
                return part
    return ()


def _runs(deltas: Sequence[DeltaLog], span_max_ms: float) -> Iterator[tuple[DeltaLog, ...]]:
    """Divide delta logs into runs of neighbors, each within the limits of one merged delta log."""
    run: list[DeltaLog] = []
    size_bytes, oldest_ms = 0, 0
    for delta in deltas:
        began_ms, ended_ms = physical_ms(delta.file.ts_min), physical_ms(delta.file.ts_max)
        is_wide = ended_ms - min(oldest_ms, began_ms) > span_max_ms
        if run and (is_wide or size_bytes + delta.file.size_bytes > MERGED_BYTES_MAX):
            yield tuple(run)
            run = []
        size_bytes, oldest_ms = (size_bytes, min(oldest_ms, began_ms)) if run else (0, began_ms)
        run.append(delta)
        size_bytes += delta.file.size_bytes
    if run:
        yield tuple(run)


def _without_large(run: tuple[DeltaLog, ...]) -> Iterator[tuple[DeltaLog, ...]]:
    """Divide a run at delta logs that have more than half of the bytes, and leave these out."""
    if len(run) < 2:
        return
    sizes = [delta.file.size_bytes for delta in run]
    largest = max(range(len(run)), key=sizes.__getitem__)
    if 2 * sizes[largest] <= sum(sizes):
        yield run
    else:
        yield from _without_large(run[:largest])
        yield from _without_large(run[largest + 1 :])

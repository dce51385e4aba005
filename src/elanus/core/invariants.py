"""The invariants of the system, by name: they hold whatever fails.

One catalog for production asserts, the simulator (`elanus.sim`) and the documentation
(`docs/reliability.md`). A failed check names its invariant, so a report can be looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping

INVARIANTS: Mapping[str, str] = {
    "TT1": "Under one epoch the ticks of a pchannel only grow, and epochs never go back.",
    "TT2": "No acknowledged write follows a tick at or above its timestamp in the log.",
    "TT3": "No reader serves a timestamp that its pchannels have not ticked past.",
    "TT4": "No two writes get the same timestamp, also across restarts and steps of the clock.",
    "CON1": "A read is answered at a timestamp that its consistency level allows.",
    "CON2": "A read at Eventually does not wait for a query node that lags.",
    "VIS1": "A row that lives at a read's timestamp is in its answer.",
    "VIS2": "A row is in an answer exactly once, during handoff and recovery too.",
    "VIS3": "A read repeated at the same timestamp has the same answer.",
    "VIS4": "An answer holds no row that was never written, and no value but the one written.",
    "VIS5": "A row that has expired at a read's timestamp is not in its answer.",
    "DEL1": "A row deleted at or before a read's timestamp is not in its answer.",
    "DEL2": "A delete affects only rows older than itself; an upsert's own rows survive it.",
    "SEG1": "Every row up to a vchannel's checkpoint is in exactly one manifest, once.",
    "SEG2": "A segment's state changes only by the allowed steps.",
    "SEG3": "No row of a segment is later than the segment's seal.",
    "SEG4": "A segment holds no more rows than its maximum.",
    "CKPT1": "A vchannel's checkpoint never goes back.",
    "CKPT2": "A checkpoint is never beyond what the log has stored durably.",
    "OWN1": "A vchannel's epoch never goes back, and grows whenever its owner changes.",
    "DDL1": "A dropped object is not found again, and reads of it return nothing.",
    "DDL2": "A write goes to a collection that its name referred to while the write ran.",
    "DUR1": "An acknowledged write is in the log, whole, and stays there until binlogs hold it.",
    "UPS1": "The log has both the delete of the old row and the new row of an upsert, or neither.",
    "IMP1": "Reads find all rows of an import or none, and a task that has failed has none.",
    "GC1": "No manifest, index build or pin in force names a missing object.",
    "GC2": "Files of dropped data stay until its tolerance has passed.",
    "GC3": "When faults end, objects that nothing refers to are deleted.",
    "LIVE1": "When faults end, loads, flushes and reads complete.",
    "LIVE2": "No role loses a background task to an error nobody handles.",
}


class InvariantBroken(Exception):
    """A violation. ``name`` is one of `INVARIANTS`; ``keys``: the affected primary keys, as far as known."""

    def __init__(self, name: str, message: str, keys: tuple[int, ...] = ()) -> None:
        super().__init__(f"{name}: {message} ({INVARIANTS[name]})")
        self.name = name
        self.keys = keys

"""The definitions of dropped collections, by which a drop is undone."""

from __future__ import annotations

from dataclasses import replace

from fakes import CID, collection
from structlog.testing import capture_logs

from elanus.api.snapshots import DroppedCollection
from elanus.core.gc import GcPolicy
from elanus.core.timestamps import compose
from elanus.datacoord.dropped_collections import DroppedCollections
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import VALUE_MAX_BYTES

DAY_S = 86_400.0


async def test_a_definition_that_fits_no_record_is_dropped_all_the_same() -> None:
    kept = DroppedCollections(MemoryMeta(), GcPolicy(DAY_S, DAY_S, DAY_S, DAY_S))
    now = compose(1_700_000_000_000)
    gone = replace(collection(), properties={"note": "x" * VALUE_MAX_BYTES}, dropped=now)
    with capture_logs() as logs:
        await kept.remember(DroppedCollection(gone, ()))
    assert [(line["event"], line["collection"]) for line in logs] == [("this drop cannot be undone", CID)]
    assert await kept.find(CID, now) is None

"""Introspection: the segments of a collection, the system's components, timestamps."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.introspection import ComponentView, SegmentView
from elanus.proxy.verbs.family import VerbFamily


class Introspection(VerbFamily):
    def persistent_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        cached = self._collection(database, collection)
        segments = self._proxy.call(self._proxy.coordinators.data.segments(cached.collection_id))
        return [
            SegmentView(
                s.segment_id,
                s.collection_id,
                s.partition_id,
                s.rows,
                s.state,
                vchannel=s.vchannel,
                is_sorted=s.is_sorted,
                compacted_from=s.compacted_from,
            )
            for s in segments
            if s.state is not SegmentState.DROPPED
        ]

    def query_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        cached = self._collection(database, collection)
        names = {index.index_id: index.name for index in cached.indexes}
        serving = self._proxy.call(self._proxy.coordinators.query.serving(cached.collection_id))
        sealed = tuple({segment.segment_id for _, segment in serving if segment.sealed})
        infos = self._proxy.call(self._proxy.coordinators.data.segments_by_id(sealed)) if sealed else ()
        is_sorted = {info.segment_id: info.is_sorted for info in infos}
        return [
            SegmentView(
                segment.segment_id,
                segment.collection_id,
                segment.partition_id,
                segment.rows,
                SegmentState.SEALED if segment.sealed else SegmentState.GROWING,
                segment.memory_bytes,
                segment.index_id,
                names.get(segment.index_id, ""),
                (node_id,),
                is_sorted=is_sorted.get(segment.segment_id, False),
            )
            for node_id, segment in serving
        ]

    def allocate_timestamp(self) -> Timestamp:
        return self._proxy.stamp()

    def components(self) -> Sequence[ComponentView]:
        return self._components()

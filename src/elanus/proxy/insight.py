"""Reads, and what the system tells about itself."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp
from elanus.proxy.api import ComponentView, Query, QueryResult, Search, SearchResult, SegmentView
from elanus.proxy.verbs import Verbs


class Insight(Verbs):
    def search(self, request: Search) -> SearchResult:
        return self._proxy.reader.search(self._collection(request.database, request.collection), request)

    def query(self, request: Query) -> QueryResult:
        return self._proxy.reader.query(self._collection(request.database, request.collection), request)

    def persistent_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        cached = self._collection(database, collection)
        segments = self._proxy.call(self._proxy.coordinators.data.segments(cached.collection_id))
        return [
            SegmentView(s.segment_id, s.collection_id, s.partition_id, s.rows, s.state)
            for s in segments
            if s.state is not SegmentState.DROPPED
        ]

    def query_segments(self, database: str, collection: str) -> Sequence[SegmentView]:
        cached = self._collection(database, collection)
        names = {index.index_id: index.name for index in cached.indexes}
        serving = self._proxy.call(self._proxy.coordinators.query.serving(cached.collection_id))
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
            )
            for node_id, segment in serving
        ]

    def allocate_timestamp(self) -> Timestamp:
        return self._proxy.stamp()

    def components(self) -> Sequence[ComponentView]:
        return self._components()

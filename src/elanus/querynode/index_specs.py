"""The vector indexes that a collection is loaded with: searches go by their metrics.

Scalar indexes are not among them. They may come and go while the collection is loaded; each segment has those
whose files it was loaded with.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.api.querynode import LoadCollection
from elanus.core.errors import IndexConflict
from elanus.core.ids import FieldID
from elanus.index import IndexSpec, resolve_field_index


def index_specs(request: LoadCollection) -> Mapping[FieldID, IndexSpec]:
    """Return the indexes of the collection's vector fields."""
    fields = request.schema.by_id
    return {
        index.field_id: resolve_field_index(index.params, fields[index.field_id])
        for index in request.indexes
        if fields[index.field_id].is_searched
    }


def check_same_indexes(known: Mapping[FieldID, IndexSpec], request: LoadCollection) -> None:
    """Raise `IndexConflict` if a field was loaded with another index than a repeated request names."""
    for field_id, spec in index_specs(request).items():
        loaded = known.get(field_id, spec)
        if spec != loaded:
            name = request.schema.by_id[field_id].name
            raise IndexConflict(
                f"field {name} was loaded with index {_shown(loaded)}, not "
                f"{_shown(spec)}: release the collection and load it again"
            )


def _shown(spec: IndexSpec) -> str:
    return spec.declared_type if spec.metric is None else f"{spec.declared_type} ({spec.metric})"

"""The verbs of indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from elanus.core.ids import FieldID, IndexID


@dataclass(frozen=True, slots=True)
class IndexView:
    """``state`` is one of None, Unissued, InProgress, Finished, Failed (the wire's names).

    ``params`` is what the client sent, in its order; ``total_rows`` counts rows of flushed segments.
    """

    index_id: IndexID
    name: str
    field_id: FieldID
    field_name: str
    params: Mapping[str, str]
    state: str
    fail_reason: str
    total_rows: int
    indexed_rows: int
    pending_rows: int


class IndexVerbs(Protocol):
    def create_index(
        self, database: str, collection: str, field_name: str, index_name: str, params: Mapping[str, str]
    ) -> None:
        """Define an index on a field, a path of a JSON field, or a key of the dynamic field.

        It is built later. Raises `FieldNotFound`, `InvalidParameter`, `IndexConflict`.
        """
        ...

    def describe_index(
        self, database: str, collection: str, index_name: str, field_name: str
    ) -> Sequence[IndexView]:
        """Return all indexes when neither name is given. Raises `IndexNotFound` when none matches."""
        ...

    def alter_index(
        self,
        database: str,
        collection: str,
        index_name: str,
        properties: Mapping[str, str],
        delete_keys: Sequence[str],
    ) -> None:
        """Set and delete properties of an index. Raises `IndexNotFound` and `CollectionLoaded`."""
        ...

    def drop_index(self, database: str, collection: str, field_name: str, index_name: str) -> None:
        """Drop those that match both names, "" for any. If none does this succeeds, as in the reference.

        Raises `InvalidParameter` for an index of vectors while the collection is loaded.
        """
        ...

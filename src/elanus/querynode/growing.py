"""A growing segment: the rows of the log that no finished segment serves yet.

Rows stay as they arrive: a block of a growing segment is an Arrow record batch straight from the log, and its
vectors are a view of it. Only small batches are merged, in the manner of a log-structured merge tree (O'Neil
et al., 1996): the last two blocks become one while the earlier is less than twice the later and together they
stay within `MERGED_BYTES_MAX`. So n single-row inserts leave O(log n) small blocks, each row is copied
O(log n) times while it is in small blocks, and rows that arrive in bulk are never copied.

Rows that have just arrived are scanned exactly. Larger runs of blocks are joined in a thread, and their
vectors get codes by which a search chooses candidates (`elanus.querynode.interim`). A graph over a segment of
512 MB would take a minute of processor time, codes take a few seconds. Both would be used only until the
finished segment is served with its own index.

Blocks are immutable apart from their deletes; a snapshot holds the tuple of blocks at its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.functions import MINHASH, Function
from elanus.core.ids import FieldID, PartitionID, SegmentID
from elanus.core.nullable import in_memory
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.visibility import NEVER_DELETED, Timestamps
from elanus.index import (
    Codebook,
    Codes,
    DeferredVectors,
    IndexSpec,
    InterimIndex,
    VectorIndex,
    interim_index,
    over_rows,
)
from elanus.querynode.block import Block
from elanus.querynode.deletes import DeleteBatch
from elanus.querynode.vectors import VectorColumn
from elanus.querynode.visibility import Visibility
from elanus.text import SignatureRows, TermRows, computed_signatures, computed_terms

MERGED_BYTES_MAX = 8 * 1024 * 1024
"""At 8 MB a scan costs about a hundred times as much as visiting one more block."""

Computed = TermRows | SignatureRows


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows to append: all columns of the schema, and the timestamp of each row."""

    batch: pa.RecordBatch
    row_ts: Timestamps


class GrowingBlock(Block):
    """A record batch as a block. ``specs``: the indexes of the collection's fields, for their metrics.

    ``computed``: the vectors that functions compute from its texts; ``earlier``: those of its first rows.
    ``codes``: of the fields that have an interim index. ``is_joined``: `GrowingSegment.joined` made it.
    """

    def __init__(
        self,
        schema: CollectionSchema,
        specs: Mapping[FieldID, IndexSpec],
        batch: pa.RecordBatch,
        row_ts: Timestamps,
        deleted_ts: Timestamps | None = None,
        earlier: Mapping[FieldID, Computed] | None = None,
        codes: Mapping[FieldID, Codes] | None = None,
        is_joined: bool = False,
    ) -> None:
        self.batch = batch
        self.codes = codes or {}
        self.is_joined = self.is_complete = is_joined
        """Whether later rows are not added to it: it is joined, or being joined."""
        self.computed: dict[FieldID, Computed] = {}
        columns = {field.name: batch.column(field.name) for field in schema.fields}
        vectors: dict[FieldID, VectorColumn] = {}
        known = earlier or {}
        codes_bytes = placeholder_bytes = 0
        for field in schema.searched_fields:
            spec, function = specs.get(field.field_id), schema.function_of(field)
            if function is not None and function.kind == MINHASH:
                vectors[field.field_id] = self._signatures(schema, function, field, spec, known)
                placeholder_bytes += columns.pop(field.name).nbytes
            elif spec is None:
                continue
            elif field.has_vector_lists:
                vectors[field.field_id] = VectorColumn.of_lists(field, spec, columns[field.name])
            else:
                index = self._index_over(schema, function, field, spec, known)
                vectors[field.field_id] = VectorColumn.held(field, index)
                codes_bytes += index.codes_bytes if isinstance(index, InterimIndex) else 0
        super().__init__(schema, columns, vectors, row_ts, deleted_ts)
        self._fixed_bytes += placeholder_bytes + codes_bytes
        self.batch_bytes = int(batch.nbytes) + codes_bytes

    @property
    def cached_bytes(self) -> int:
        """As for every block, with the vectors that searches have had computed."""
        return super().cached_bytes + sum(made.nbytes for made in self.computed.values())

    def vectors_of(self, field: FieldSchema) -> Any:
        """Return a field's vectors in memory: a matrix, or `NullableVectors`."""
        return in_memory(field.vector, self.batch.column(field.name))

    def take_deletes(self, parts: Sequence[GrowingBlock]) -> None:
        """Take over the deletes of the blocks that this one replaces. Nothing reads this one yet."""
        self._visibility = Visibility(self.row_ts, _joined_deletes(parts))

    def _index_over(
        self,
        schema: CollectionSchema,
        function: Function | None,
        field: FieldSchema,
        spec: IndexSpec,
        earlier: Mapping[FieldID, Computed],
    ) -> VectorIndex:
        """Return the index over a field's vectors, or over the terms that its ``function`` computes."""
        if field.field_id in self.codes:
            return interim_index(spec, self.vectors_of(field), self.codes[field.field_id])
        if function is None:
            rows = self.vectors_of(field)
            return over_rows(field.data_type, field.dim, spec.metric_type, rows, spec.params)
        known = earlier.get(field.field_id)
        assert known is None or isinstance(known, TermRows)
        terms = computed_terms(schema, function, self.batch, known)
        self.computed[field.field_id] = terms
        return over_rows(field.data_type, field.dim, spec.metric_type, terms)

    def _signatures(
        self,
        schema: CollectionSchema,
        function: Function,
        field: FieldSchema,
        spec: IndexSpec | None,
        earlier: Mapping[FieldID, Computed],
    ) -> VectorColumn:
        """Return the signatures that ``function`` computes, on their first read. ``spec``: None: no index."""
        known = earlier.get(field.field_id)
        assert known is None or isinstance(known, SignatureRows)
        made = computed_signatures(schema, function, self.batch, known)
        self.computed[field.field_id] = made
        if spec is None:
            return VectorColumn(field, None, lambda rows: made.rows[rows], lambda: None)

        def exact() -> VectorIndex:
            return over_rows(field.data_type, field.dim, spec.metric_type, made.rows, spec.params)

        return VectorColumn.held(field, DeferredVectors(spec, len(made), exact))


@dataclass(slots=True)
class _Pile:
    """Rows that are to become one block. ``parts`` has one item if there is nothing to merge."""

    parts: list[GrowingBlock | NewRows]
    bytes: int


class GrowingSegment:
    """A growing segment. Readers take ``blocks``, which the loop thread replaces."""

    def __init__(
        self,
        segment_id: SegmentID,
        partition_id: PartitionID,
        schema: CollectionSchema,
        specs: Mapping[FieldID, IndexSpec],
    ) -> None:
        self.segment_id = segment_id
        self.partition_id = partition_id
        self.column_names: Sequence[str] = schema.arrow_schema.names
        """The columns that the segment holds of its rows."""
        self.blocks: tuple[GrowingBlock, ...] = ()
        self._schema = schema
        self._specs = specs
        self._codebooks = {f: Codebook(spec) for f, spec in specs.items() if Codebook.takes(spec)}
        if any(schema.function_of(field) is not None for field in schema.vector_fields):
            self._codebooks = {}

    @property
    def takes_codes(self) -> bool:
        """Whether `joined` can give a field an interim index."""
        return any(book.is_usable for book in self._codebooks.values())

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def memory_bytes(self) -> int:
        return sum(block.memory_bytes for block in self.blocks)

    def append(self, arrivals: Iterable[NewRows]) -> None:
        """Append rows that are later than all rows here."""
        self.blocks = self.with_rows(arrivals)

    def with_rows(self, arrivals: Iterable[NewRows]) -> tuple[GrowingBlock, ...]:
        """Return the blocks that the segment has after `append`. For any thread."""
        piles = [_Pile([block], block.batch_bytes) for block in self.blocks]
        for arrival in arrivals:
            if arrival.batch.num_rows:
                piles.append(_Pile([arrival], arrival.batch.nbytes))
                _collapse(piles)
        return tuple(self._block(pile.parts) for pile in piles)

    def joined(self, parts: Sequence[GrowingBlock]) -> GrowingBlock:
        """Return one block in the place of consecutive ones, without deletes, with interim indexes.

        For any thread, one at a time.
        """
        codes = {}
        for field_id, book in self._codebooks.items():
            field = self._schema.by_id[field_id]
            made = book.codes_of([(part.vectors_of(field), part.codes.get(field_id)) for part in parts])
            if made is not None:
                codes[field_id] = made
        batch = pa.concat_batches([part.batch for part in parts]) if len(parts) > 1 else parts[0].batch
        row_ts = np.concatenate([part.row_ts for part in parts])
        earlier = parts[0].computed
        return GrowingBlock(self._schema, self._specs, batch, row_ts, None, earlier, codes, is_joined=True)

    def delete(self, deletes: Sequence[DeleteBatch]) -> None:
        """Apply the deletes that concern the segment's partition."""
        for batch in deletes:
            if batch.concerns(self.partition_id):
                for block in self.blocks:
                    block.delete(batch)

    def _block(self, parts: list[GrowingBlock | NewRows]) -> GrowingBlock:
        if len(parts) > 1:
            batch = pa.concat_batches([part.batch for part in parts])
            row_ts = np.concatenate([part.row_ts for part in parts])
            earlier = parts[0].computed if isinstance(parts[0], GrowingBlock) else None
            return GrowingBlock(self._schema, self._specs, batch, row_ts, _joined_deletes(parts), earlier)
        part = parts[0]
        if isinstance(part, GrowingBlock):
            return part
        return GrowingBlock(self._schema, self._specs, part.batch, part.row_ts)


def _collapse(piles: list[_Pile]) -> None:
    while len(piles) > 1:
        earlier, later = piles[-2:]
        if isinstance(earlier.parts[0], GrowingBlock) and earlier.parts[0].is_complete:
            return
        together = earlier.bytes + later.bytes
        if earlier.bytes >= 2 * later.bytes or together > MERGED_BYTES_MAX:
            return
        piles[-2:] = [_Pile([*earlier.parts, *later.parts], together)]


def _joined_deletes(parts: Sequence[GrowingBlock | NewRows]) -> Timestamps | None:
    deleted = [part.deleted_ts if isinstance(part, GrowingBlock) else None for part in parts]
    if all(deleted_ts is None for deleted_ts in deleted):
        return None
    return np.concatenate(
        [
            np.full(len(part.row_ts), NEVER_DELETED) if deleted_ts is None else deleted_ts
            for part, deleted_ts in zip(parts, deleted, strict=True)
        ]
    )

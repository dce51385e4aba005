"""The deletes of a write: which keys it deletes, as one delta log for each vchannel. Plain Arrow: no Spark.

An upsert deletes the keys of its own rows, a delete those in its files, an overwrite in addition those that
the partition has. The collection is not read: of an upsert only the keys of the segments that it wrote
itself, of an overwrite the keys of the partition. All deletes get the timestamp of the commit, as the rows
do, so the rows themselves are spared: a delete concerns older rows only.

Memory: the keys of one vchannel, and those of one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.imports import ImportedSegment, ImportOrder
from elanus.core.channels import shard_of_keys
from elanus.core.errors import InvalidParameter
from elanus.core.given_columns import keys_only
from elanus.core.given_types import check_columns
from elanus.core.ids import ALL_PARTITIONS, PartitionID
from elanus.core.imports import WriteMode
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile, DeltaLog
from elanus.pipeline.import_columns import convert
from elanus.pipeline.import_sources import opened, tables
from elanus.pipeline.import_survey import named_files
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.parquet import rows_per_group
from elanus.storage.paths import delta_log_path
from elanus.storage.port import ObjectStore

_KEYS_AT_ONCE = 1 << 20


def write_deletes(
    order: ImportOrder,
    segments: Sequence[ImportedSegment],
    source: ObjectStore,
    store: ObjectStore,
    scratch: Path,
    name: str,
) -> tuple[DeltaLog, ...]:
    """Write the delta logs of a write, all called ``name``, and return them.

    ``segments``: those that the write itself has written. ``source``: the store of the users' files;
    ``scratch``: a local directory. Raises `InvalidParameter` for a key that the write has twice, or that is
    none, `DiskFull`, and `ObjectMissing` and `CorruptObject` naming a file.
    """
    if order.mode is WriteMode.APPEND:
        return ()
    found = []
    given = _keys_of_files(order, source) if order.mode is WriteMode.DELETE else {}
    for vchannel in order.vchannels:
        own = _keys_of_segments(order, [s.insert_log for s in segments if s.vchannel == vchannel], store)
        _check_unique(order, own)
        everywhere = chain(own, given.get(vchannel, ()))
        limit = order.partition_id if order.mode is WriteMode.DELETE else ALL_PARTITIONS
        batches = [(limit, keys) for keys in everywhere]
        for manifest in order.replaced:
            if manifest.vchannel == vchannel and manifest.insert_logs:
                keys = _keys_of_segments(order, manifest.insert_logs, store)
                batches += [(manifest.partition_id, some) for some in keys]
        if any(len(keys) for _, keys in batches):
            file = _write(order, vchannel, batches, store, scratch, name)
            found.append(DeltaLog(vchannel, file))
    return tuple(found)


def _keys_of_segments(order: ImportOrder, files: Sequence[BinlogFile], store: ObjectStore) -> list[pa.Array]:
    key = order.schema.primary_field.name
    return [read_columns(store, [file], [key]).column(key).combine_chunks() for file in files]


def _keys_of_files(order: ImportOrder, source: ObjectStore) -> dict[str, list[pa.Array]]:
    """Return the keys in the users' files, by vchannel."""
    schema = keys_only(order.schema)
    found: dict[str, list[pa.Array]] = {}
    for keys in _read_keys(order, schema, source):
        shard_of = shard_of_keys(keys, len(order.vchannels))
        for shard in np.unique(shard_of).tolist():
            found.setdefault(order.vchannels[shard], []).append(keys.filter(pa.array(shard_of == shard)))
    return found


def _read_keys(order: ImportOrder, schema: CollectionSchema, source: ObjectStore) -> Iterator[pa.Array]:
    for table in tables(named_files(source, order.files), order.csv):
        with opened(source, table, schema) as rows:
            for columns in rows.schemas():
                check_columns(schema, columns, table.file)
            for group in rows.groups():
                place = rows.place(group)
                for batch in rows.batches(group, rows_per_group(schema.row_bytes_estimate)):
                    yield convert(schema, batch, None, place).column(0)
                    place = place.moved(batch.num_rows)


def _check_unique(order: ImportOrder, keys: Sequence[pa.Array]) -> None:
    """Raise `InvalidParameter` if a key is there twice: neither of its rows would replace the other."""
    together = pa.chunked_array(keys, order.schema.primary_field.arrow_type)
    if pc.count_distinct(together).as_py() == len(together):
        return
    counts = pc.value_counts(together)
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0]
    raise InvalidParameter(
        f"the rows of this write have the key {twice} twice, so it is not known which of them replaces the "
        f"other: keep one row of each {order.schema.primary_field.name}, with dropDuplicates for example"
    )


def _write(
    order: ImportOrder,
    vchannel: str,
    batches: Iterable[tuple[PartitionID, pa.Array]],
    store: ObjectStore,
    scratch: Path,
    name: str,
) -> BinlogFile:
    schema = delta_log_schema(order.schema.primary_field, order.collection_id, vchannel)
    path = delta_log_path(order.collection_id, vchannel, name)
    with delta_log_writer(store, path, schema, scratch) as writer:
        for partition_id, keys in batches:
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                some = keys.slice(first, _KEYS_AT_ONCE)
                writer.write(delete_rows(some, order.stamp, partition_id, schema))
        return writer.finish()

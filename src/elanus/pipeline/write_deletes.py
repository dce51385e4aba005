"""The deletes of a write: which keys it deletes, as one delta log for each vchannel. Plain Arrow: no Spark.

An upsert deletes the keys of its own rows, a delete those in its files, an overwrite in addition those that
the partition has. The collection is not read: of an upsert only the keys of the segments that it wrote
itself, of an overwrite the keys of the partition. All deletes get the timestamp of the commit, as the rows
do, so the rows themselves are spared: a delete concerns older rows only.

Upserts and overwrites run this in the data node's process, next to whatever else is there. Users'
files are read by a task in a worker (`elanus.pipeline.delete_job`), in small pieces. Memory: of an upsert or
an overwrite the keys of one vchannel; of a delete one row group for each vchannel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.api.imports import ImportedSegment, ImportOrder
from elanus.core.channels import shard_of_keys
from elanus.core.errors import InvalidParameter
from elanus.core.given_columns import keys_only
from elanus.core.given_types import check_columns
from elanus.core.ids import PartitionID
from elanus.core.imports import WriteMode
from elanus.core.schema import CollectionSchema
from elanus.core.segments import BinlogFile, DeltaLog
from elanus.pipeline.import_columns import convert
from elanus.pipeline.import_input import input_file
from elanus.pipeline.import_sources import opened, tables
from elanus.pipeline.import_survey import named_files
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import delete_rows, delta_log_schema, delta_log_writer
from elanus.storage.parquet import BinlogWriter
from elanus.storage.paths import delta_log_path
from elanus.storage.port import ObjectStore

JSON_BYTES_MAX = 1 << 20
"""A JSON list of keys to delete that is larger than this is refused."""
_KEYS_AT_ONCE = 1 << 20
_ROWS_AT_ONCE = 1 << 16


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
    if order.mode is WriteMode.DELETE:
        return _write_given(order, source, store, scratch, name)
    found = []
    for vchannel in order.vchannels:
        own = _keys_of_segments(order, [s.insert_log for s in segments if s.vchannel == vchannel], store)
        _check_unique(order, own)
        batches = [(order.partition_id, keys) for keys in own]
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


def _write_given(
    order: ImportOrder, source: ObjectStore, store: ObjectStore, scratch: Path, name: str
) -> tuple[DeltaLog, ...]:
    """Write the keys in the users' files, which are read once, for all vchannels."""
    with contextlib.ExitStack() as stack:
        writers: dict[str, BinlogWriter] = {}
        for keys in _read_keys(order, keys_only(order.schema), source):
            shard_of = shard_of_keys(keys, len(order.vchannels))
            for shard in np.unique(shard_of).tolist():
                vchannel = order.vchannels[shard]
                if vchannel not in writers:
                    writers[vchannel] = stack.enter_context(_writer(order, vchannel, store, scratch, name))
                own = keys.filter(pa.array(shard_of == shard))
                _add(writers[vchannel], order, vchannel, order.partition_id, own)
        return tuple(DeltaLog(v, writers[v].finish()) for v in order.vchannels if v in writers)


def _read_keys(order: ImportOrder, schema: CollectionSchema, source: ObjectStore) -> Iterator[pa.Array]:
    for table in tables(named_files(source, order.files), order.csv):
        _check_size(source, table.file)
        with opened(source, table, schema) as rows:
            for columns in rows.schemas():
                check_columns(schema, columns, table.file)
            for group in rows.groups():
                place = rows.place(group)
                for batch in rows.batches(group, _ROWS_AT_ONCE):
                    yield convert(schema, rows.columns(batch, place), None, place).column(0)
                    place = place.moved(len(batch))


def _check_size(source: ObjectStore, name: str) -> None:
    """Raise `InvalidParameter` for a large JSON list: it is decoded in one go, while nothing else runs."""
    size_bytes = input_file(source, name).size_bytes if name.endswith(".json") else 0
    if size_bytes > JSON_BYTES_MAX:
        raise InvalidParameter(
            f"{name} has {size_bytes} bytes; a JSON list of keys to delete may have {JSON_BYTES_MAX}: write "
            "the keys as Parquet, or as JSON lines (.jsonl)"
        )


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
    with _writer(order, vchannel, store, scratch, name) as writer:
        for partition_id, keys in batches:
            _add(writer, order, vchannel, partition_id, keys)
        return writer.finish()


def _writer(order: ImportOrder, vchannel: str, store: ObjectStore, scratch: Path, name: str) -> BinlogWriter:
    path = delta_log_path(order.collection_id, vchannel, name)
    return delta_log_writer(store, path, _schema(order, vchannel), scratch)


def _schema(order: ImportOrder, vchannel: str) -> pa.Schema:
    return delta_log_schema(order.schema.primary_field, order.collection_id, vchannel)


def _add(
    writer: BinlogWriter, order: ImportOrder, vchannel: str, partition_id: PartitionID, keys: pa.Array
) -> None:
    schema = _schema(order, vchannel)
    for first in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys.slice(first, _KEYS_AT_ONCE)
        writer.write(delete_rows(some, order.stamp, partition_id, schema))

"""Bulk imports: from the names a client gives to a datacoord task, and the status of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.api.connector import WriteTarget
from elanus.api.imports import ImportRequest
from elanus.core.errors import ImportRefused, InvalidParameter, NotSupported
from elanus.core.given_columns import keys_only
from elanus.core.ids import ALL_PARTITIONS, CollectionID, PartitionID, TaskID
from elanus.core.import_files import check_name
from elanus.core.imports import Duplicates, ImportTask, WriteMode, WritePlace
from elanus.core.limits import IMPORT_FILES_MAX
from elanus.core.names import DEFAULT_PARTITION
from elanus.core.rate_limits import Action
from elanus.core.schema import CollectionSchema
from elanus.core.sent_keys import marked
from elanus.proxy.api.imports import DEFAULT_OPTIONS, ImportOptions
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.verbs.family import VerbFamily
from elanus.proxy.verbs.row_writes import write_partition


class BulkImports(VerbFamily):
    def start_import(
        self,
        database: str,
        collection: str,
        partition: str,
        files: Sequence[str],
        options: ImportOptions = DEFAULT_OPTIONS,
    ) -> ImportTask:
        check_files(files)
        mode = options.mode
        cached = self._collection(database, collection)
        self._proxy.admission.allow(Action.WRITING, cached)
        if mode is not WriteMode.DELETE:
            self._proxy.admission.check_disk(cached, 1)  # how large the files are is not known yet
        if partition and cached.view.schema.partition_key is not None:
            raise ImportRefused(
                "not allow to set partition name for collection with partition key: importing data failed"
            )
        partition_id = _partition_id(cached, partition, mode)
        check_mode(mode, cached.view.schema, partition)
        check_duplicates(options.duplicates, cached.view.schema)
        _check_place(options.place, WritePlace(cached.collection_id, partition_id), collection, partition)
        if partition_id != ALL_PARTITIONS:
            partition = partition or DEFAULT_PARTITION
        request = ImportRequest(
            cached.collection_id,
            cached.view.name,
            partition_id,
            partition,
            tuple(files),
            options.write_id,
            options.rejects_max,
            options.batch,
            mode,
            options.duplicates,
            cached.keeps_sent_keys,
            options.csv,
            options.timeout_ms,
            options.query_id,
            options.auto_commit,
        )
        data = self._proxy.coordinators.data
        return self.import_task(self._proxy.call(data.start_import(request)))

    def write_target(self, database: str, collection: str, partition: str, mode: WriteMode) -> WriteTarget:
        cached = self._collection(database, collection)
        place = WritePlace(cached.collection_id, _partition_id(cached, partition, mode))
        schema = cached.view.schema
        check_mode(mode, schema, partition)
        if mode is WriteMode.DELETE:
            return WriteTarget(place, keys_only(schema))
        return WriteTarget(place, marked(schema) if cached.keeps_sent_keys else schema)

    def import_task(self, task_id: int) -> ImportTask:
        return self._proxy.call(self._proxy.coordinators.data.import_task(TaskID(task_id)))

    def import_tasks(self, database: str, collection: str, limit: int) -> Sequence[ImportTask]:
        collection_id = CollectionID(0)
        if collection:
            collection_id = self._collection(database, collection).collection_id
        tasks = self._proxy.call(self._proxy.coordinators.data.import_tasks(collection_id))
        return tasks[-limit:] if limit > 0 else tasks

    def commit_import(self, task_id: int) -> None:
        self._proxy.call(self._proxy.coordinators.data.commit_import(TaskID(task_id)))

    def cancel_import(self, task_id: int) -> None:
        self._proxy.call(self._proxy.coordinators.data.cancel_import(TaskID(task_id)))


def _partition_id(cached: CachedCollection, partition: str, mode: WriteMode) -> PartitionID:
    found = write_partition(cached, partition)
    return ALL_PARTITIONS if mode is WriteMode.DELETE and not partition else found


def _check_place(begun: WritePlace | None, now: WritePlace, collection: str, partition: str) -> None:
    """Raise `InvalidParameter` if names have come to mean another place since a write began."""
    if begun is None or begun == now:
        return
    what = f"collection {collection}"
    if begun.collection_id == now.collection_id:
        what = f"partition {partition or DEFAULT_PARTITION} of {what}"
    raise InvalidParameter(
        f"the {what} is another one than when the write began: it was dropped and created again, or the name "
        "was given to another one. None of the write's rows is there: write them again if they belong there"
    )


def check_mode(mode: WriteMode, schema: CollectionSchema, partition: str) -> None:
    """Check that rows may be written in this way. Raises `InvalidParameter` and `NotSupported`."""
    if schema.stored_functions and mode is not WriteMode.DELETE:
        raise NotSupported(
            f"imports into collection {schema.name} are not supported by this release: jobs do not call the "
            f"provider of its function {schema.stored_functions[0].name}; insert the rows"
        )
    key = schema.primary_field
    if key.auto_id and mode in (WriteMode.UPSERT, WriteMode.OVERWRITE):
        raise InvalidParameter(
            f"the server makes the keys of collection {schema.name} (field {key.name}), so a write in mode "
            f"{mode.value} has none by which rows could replace others: use append, or delete by keys"
        )
    if mode is WriteMode.OVERWRITE and not partition:
        raise InvalidParameter(
            "an overwrite replaces the rows of one partition: name it in the option partition (_default for "
            "the default one)"
        )


def check_duplicates(duplicates: Duplicates, schema: CollectionSchema) -> None:
    """Check that rows may be chosen by their keys. Raises `InvalidParameter`."""
    key = schema.primary_field
    if key.auto_id and duplicates is not Duplicates.KEEP:
        raise InvalidParameter(
            f"duplicates is {duplicates.value}, but the server makes the keys of collection {schema.name} "
            f"(field {key.name}): no row has a key that is there already; leave the option out"
        )


def check_files(files: Sequence[str]) -> None:
    """Check that these files may be imported. Raises `InvalidParameter`, `ImportRefused`."""
    if not files:
        raise InvalidParameter("import request is empty: give paths of files below the import directory")
    if len(files) > IMPORT_FILES_MAX:
        raise ImportRefused(
            f"The max number of import files should not exceed {IMPORT_FILES_MAX}, but got {len(files)}: "
            "import them in several tasks: importing data failed"
        )
    if len(set(files)) < len(files):
        raise InvalidParameter("a file is named twice in one import")
    for file in files:
        check_name(file)

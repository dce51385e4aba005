"""Imports as a client's thread calls them: names become ids, and bad paths go no further."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from fakes import CID, DEFAULT, OTHER, collection, schema
from proxy_bench import Bench

from elanus.api.imports import ImportRequest
from elanus.core.errors import (
    CollectionNotFound,
    ElanusError,
    ImportRefused,
    InvalidParameter,
    PartitionNotFound,
)
from elanus.core.ids import CollectionID, PartitionID
from elanus.core.imports import CsvFormat, Duplicates, WriteMode
from elanus.core.limits import IMPORT_FILES_MAX
from elanus.core.sent_keys import ALLOW_INSERT_AUTO_ID, is_made
from elanus.proxy.api.imports import ImportOptions


def in_a_thread(
    work: Callable[[Bench], None], *, auto_id: bool = False, properties: Mapping[str, str] | None = None
) -> None:
    async def run() -> None:
        of = collection(schema(auto_id=auto_id), partitions=(DEFAULT, OTHER))
        bench = Bench(replace(of, properties=properties or {}))
        await bench.proxy.start()
        await asyncio.to_thread(work, bench)
        await bench.proxy.stop()

    asyncio.run(run())


def test_names_become_ids() -> None:
    def work(bench: Bench) -> None:
        task = bench.verbs.start_import("default", "c", "p1", ["deep/a.parquet"])
        bench.verbs.start_import("default", "c", "", ["b.csv"], ImportOptions(csv=CsvFormat(";")))
        assert bench.data.calls.of("start_import") == [
            ImportRequest(CID, "c", OTHER, "p1", ("deep/a.parquet",)),
            ImportRequest(CID, "c", DEFAULT, "_default", ("b.csv",), csv=CsvFormat(";")),
        ]
        assert bench.verbs.import_task(task.task_id) == task
        assert len(bench.verbs.import_tasks("default", "c", 0)) == 2
        assert [t.files for t in bench.verbs.import_tasks("default", "", 1)] == [("b.csv",)]
        bench.verbs.cancel_import(task.task_id)
        assert bench.data.calls.of("cancel_import") == [task.task_id]

    in_a_thread(work)


def test_files_may_bring_keys_where_the_collection_keeps_sent_ones() -> None:
    def work(bench: Bench) -> None:
        bench.verbs.start_import("default", "c", "", ["a.parquet"])
        (asked,) = bench.data.calls.of("start_import")
        assert asked.takes_keys

    in_a_thread(work, auto_id=True, properties={ALLOW_INSERT_AUTO_ID: "true"})


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ([], InvalidParameter),
        (["/etc/passwd.parquet"], InvalidParameter),
        (["../a.parquet"], InvalidParameter),
        (["a\0.parquet"], InvalidParameter),
        (["a/../../b.parquet"], InvalidParameter),
        (["a//b.parquet"], InvalidParameter),
        ([".hidden.parquet"], InvalidParameter),
        (["s3://bucket/a.parquet"], InvalidParameter),
        (["a.parquet", "a.parquet"], InvalidParameter),
        (["a.xml"], ImportRefused),
        ([f"{n}.parquet" for n in range(IMPORT_FILES_MAX + 1)], ImportRefused),
    ],
)
def test_files_that_are_refused_at_once(files: list[str], error: type[ElanusError]) -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(error):
            bench.verbs.start_import("default", "c", "", files)
        assert bench.data.calls.of("start_import") == []

    in_a_thread(work)


def test_a_collection_or_partition_that_is_not_there() -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(CollectionNotFound):
            bench.verbs.start_import("default", "nothing", "", ["a.parquet"])
        with pytest.raises(PartitionNotFound):
            bench.verbs.start_import("default", "c", "nothing", ["a.parquet"])

    in_a_thread(work)


def test_rows_are_chosen_by_keys_only_where_the_files_have_them() -> None:
    def work(bench: Bench) -> None:
        with pytest.raises(InvalidParameter, match="duplicates is first, but the server makes the keys"):
            bench.verbs.start_import(
                "default", "c", "", ["a.parquet"], ImportOptions(duplicates=Duplicates.FIRST)
            )
        with pytest.raises(InvalidParameter, match="use append"):
            bench.verbs.start_import("default", "c", "", ["a.parquet"], ImportOptions(mode=WriteMode.UPSERT))
        bench.verbs.start_import("default", "c", "", ["a.parquet"])
        assert len(bench.data.calls.of("start_import")) == 1

    in_a_thread(work, auto_id=True)


def test_the_schema_of_a_write_is_refused_as_the_write_would_be() -> None:
    def work(bench: Bench) -> None:
        verbs, names = bench.verbs, []
        for mode in (WriteMode.APPEND, WriteMode.DELETE):
            schema = verbs.write_target("default", "c", "p1", mode).schema
            names.append([field.name for field in schema.fields if is_made(field, schema.by_name)])
        assert names == [["pk"], []], "a delete names keys that the server made"
        with pytest.raises(PartitionNotFound):
            verbs.write_target("default", "c", "nothing", WriteMode.APPEND)
        with pytest.raises(InvalidParameter, match="use append"):
            verbs.write_target("default", "c", "", WriteMode.UPSERT)
        with pytest.raises(CollectionNotFound):
            verbs.write_target("default", "d", "", WriteMode.APPEND)

    in_a_thread(work, auto_id=True)


def test_a_write_whose_names_have_come_to_mean_another_place_is_refused() -> None:
    """As when the collection was dropped and created again, or its alias moved, since the write began."""

    def work(bench: Bench) -> None:
        verbs = bench.verbs
        place = verbs.write_target("default", "c", "p1", WriteMode.APPEND).place
        other = replace(place, collection_id=CollectionID(place.collection_id + 1))
        with pytest.raises(InvalidParameter, match="the collection c is another one than when the write"):
            verbs.start_import("default", "c", "p1", ["a.parquet"], ImportOptions(place=other))
        other = replace(place, partition_id=PartitionID(place.partition_id + 1))
        with pytest.raises(InvalidParameter, match="the partition p1 of collection c is another one"):
            verbs.start_import("default", "c", "p1", ["a.parquet"], ImportOptions(place=other))
        assert bench.data.calls.of("start_import") == []
        for partition, mode in (("p1", WriteMode.APPEND), ("", WriteMode.APPEND), ("", WriteMode.DELETE)):
            place = verbs.write_target("default", "c", partition, mode).place
            options = ImportOptions(mode=mode, place=place)
            verbs.start_import("default", "c", partition, ["a.parquet"], options)
        assert len(bench.data.calls.of("start_import")) == 3

    in_a_thread(work)

"""A data node that imports small files with tasks that run here and now, for this package's tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fakes import inline

from elanus.api.imports import ImportedSegment, ImportOrder, ImportOutcome
from elanus.core.ids import CollectionID, FieldID, PartitionID, TaskID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.datanode.imports import ImportSettings, SparkImports
from elanus.pipeline.import_job import import_task
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.import_survey import SurveyPlan, survey_task
from elanus.pipeline.port import Job, JobLost
from elanus.storage.binlog import read_columns
from elanus.storage.objects import open_store

SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2),
    ),
)
ROWS = 10


class Ids:
    def __init__(self) -> None:
        self.next = 1000

    async def alloc_ids(self, count: int) -> int:
        first, self.next = self.next, self.next + count
        return first


@dataclass
class Spark:
    """Runs tasks here and now; loses its JVM before the ``lost``-th import task."""

    lost: int = -1
    slots: int = 2
    surveys: list[SurveyPlan] = field(default_factory=list)
    imports: list[ImportPlan] = field(default_factory=list)
    tasks: list[Callable[..., Any]] = field(default_factory=list)

    async def run(self, job: Job[Any, Any], cause: str, waiting: tuple[str, ...]) -> list[Any]:
        outcomes = []
        for plan in job.plans:
            self.tasks.append(job.task)
            if job.task is survey_task:
                self.surveys.append(plan)
            elif job.task is import_task:
                if len(self.imports) == self.lost:
                    raise JobLost("the JVM is gone")
                self.imports.append(plan)
            outcomes.append(job.task(plan))
        job.output(outcomes)
        return outcomes


@dataclass
class Node:
    """A data node whose tasks take one file each."""

    directory: Path
    spark: Spark = field(default_factory=Spark)
    ids: Ids = field(default_factory=Ids)

    async def run(self, *names: str, **changes: Any) -> ImportOutcome:
        return await self.imports().import_files(self.order(*names, **changes))

    def imports(self) -> SparkImports:
        settings = ImportSettings(
            source_url=(self.directory / "import").as_uri(),
            store_url=(self.directory / "files").as_uri(),
            scratch_dir=str(self.directory / "scratch"),
            task_bytes_max=1 << 20,
        )
        return SparkImports(self.spark, self.ids, settings, inline)  # type: ignore[arg-type]

    def order(self, *names: str, **changes: Any) -> ImportOrder:
        order = ImportOrder(
            TaskID(3),
            5,
            CollectionID(7),
            PartitionID(8),
            SCHEMA,
            ("by-dev-rootcoord-dml_0_7v0",),
            names,
            segment_rows_max=ROWS,
            stamp=Timestamp(99),
            first_attempt=5,
        )
        return replace(order, **changes)

    def write(self, name: str, first: int, rows: int = ROWS) -> None:
        file = self.directory / "import" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        keys = range(first, first + rows)
        vectors = pa.array([[float(k), 1.0] for k in keys], pa.list_(pa.float32()))
        pq.write_table(pa.table({"id": keys, "v": vectors}), file, row_group_size=500)

    def keys(self, segments: tuple[ImportedSegment, ...]) -> Counter[int]:
        store = open_store((self.directory / "files").as_uri())
        logs = [segment.insert_log for segment in segments]
        return Counter(key for log in logs for key in read_columns(store, [log], ["id"])["id"].to_pylist())

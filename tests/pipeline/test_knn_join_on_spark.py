"""A kNN join whose task is killed: Spark runs it again, and no hit is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from elanus.pipeline.session import PipelineSession
from elanus.spark.knn import joined
from elanus.spark.searches import SearchJob, search_plan, segment_sets
from tests.pure.spark.snapshot_world import World, vectors

pytestmark = pytest.mark.jvm


def test_a_worker_that_is_killed_in_a_search_costs_nothing(session: PipelineSession, tmp_path: Path) -> None:
    spark = SparkSession(session.context)
    world = World(tmp_path)
    world.index(world.add(list(range(50)), vectors(50)))
    world.add(list(range(50, 90)), vectors(40, 6))
    plan = search_plan(world.snapshot, world.store.url, field="v", k=2)
    job = SearchJob(plan, segment_sets(world.snapshot, plan, 1))
    assert len(job.sets) == 1, "the search and what follows it are one task"
    asked = spark.createDataFrame(
        [(n, vectors(50)[n].tolist()) for n in (3, 7, 11)], "query_id long, vector array<float>"
    )
    killed = tmp_path / "killed"

    def deadly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Die with the first hits, once."""
        import os
        import signal

        for batch in batches:
            if batch.num_rows and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    hits = joined(spark, job, asked, 1)
    found = hits.mapInArrow(deadly, hits.schema).collect()
    assert killed.exists()
    expected = [
        (n, rank, key) for n in (3, 7, 11) for rank, key in enumerate(world.nearest(vectors(50)[n], 2), 1)
    ]
    assert sorted((row.query_id, row.rank, row.key) for row in found) == expected

"""Near duplicates of a collection: groups of rows whose vectors are closer to each other than a radius.

Each task takes the vectors of one segment and searches one set of segments for them: rows go from files to
the search without passing through Spark. Pairs become groups in two steps, in each task and then in one more,
which both keep at most one pair a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from elanus.core.batches import batched
from elanus.core.errors import InvalidParameter
from elanus.core.limits import TOP_K_MAX
from elanus.core.segments import SegmentManifest
from elanus.index import resolve_search
from elanus.spark.components import forest, pairs_schema, reduced_pairs
from elanus.spark.plain_errors import plain_errors
from elanus.spark.query_vectors import check_k
from elanus.spark.searches import SearchJob, pinned_job
from elanus.spark.segment import read_segment
from elanus.spark.segment_search import SegmentSet, vectors_of
from elanus.spark.slots import slots, threads
from elanus.storage.objects import open_store

NEIGHBORS = 16


def near_duplicates(
    spark: SparkSession,
    target: str,
    *,
    field: str,
    radius: float,
    k: int = NEIGHBORS,
    filter: str = "",  # noqa: A002 - what clients call it
    params: Mapping[str, Any] | None = None,
    as_of: int | datetime | None = None,
    exact: bool = False,
    **options: str,
) -> DataFrame:
    """Return the rows of collection ``target`` that another row makes redundant.

    Columns: ``key`` (the primary key of such a row) and ``keep`` (the smallest key of its group, which is in
    no row of the result as ``key``). Two rows are in one group when their score is within ``radius``, or when
    a chain of such pairs connects them: smaller than the radius for L2, HAMMING and JACCARD, larger for IP
    and COSINE. ``k``: how many neighbors of each row are looked at in each set of segments; where more rows
    than that are that close to each other, a group may come in parts.

    ``filter``: which rows take part. The other parameters, and what is raised, are those of
    `elanus.spark.knn.knn_join`. To delete the rows, write their keys with the format ``elanus`` and the
    option ``operation=delete``, or use `delete_filters`.
    """
    check_k(k, TOP_K_MAX - 1)
    if "radius" in (params or {}):
        raise InvalidParameter("give the radius as radius, not within params")
    parallelism = slots(spark)
    job = pinned_job(
        target,
        field=field,
        k=k + 1,  # each row finds itself
        filter=filter,
        params={**(params or {}), "radius": radius},
        as_of=as_of,
        exact=exact,
        parallelism=parallelism,
        options=options,
    )
    schema = pairs_schema(job.plan.schema.primary_field.arrow_type)
    fields = from_arrow_schema(schema)
    result = StructType([StructField(f.name, f.dataType, nullable=False) for f in fields])
    tasks = len(job.segments) * len(job.sets)
    if not tasks:
        return spark.createDataFrame([], result)
    pairs = spark.range(0, tasks, 1, tasks).mapInArrow(partial(_find, job, schema), result)
    return pairs.repartition(1).mapInArrow(partial(reduced_pairs, schema=schema), result)


def delete_filters(keys: Iterator[Any], name: str = "id", size: int = 1000) -> Iterator[str]:
    """Yield filters for `MilvusClient.delete`, ``size`` keys each. ``name``: of the primary key."""
    for some in batched(keys, size):
        yield f"{name} in {list(some)!r}"


def _find(job: SearchJob, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task: numbers of pairs of a segment and a set."""
    segments = job.segments
    for batch in batches:
        for number in batch.column(0).to_pylist():
            segment, searched = divmod(number, len(job.sets))
            with plain_errors():
                yield pairs_of(job, segments[segment], job.sets[searched], schema, threads())


def pairs_of(
    job: SearchJob,
    segment: SegmentManifest,
    searched: tuple[SegmentManifest, ...],
    schema: pa.Schema,
    threads: int,
) -> pa.RecordBatch:
    """Return which rows of a segment are close to rows of a set, as a forest (`elanus.spark.components`)."""
    plan, store = job.plan, open_store(job.plan.store_url)
    params = resolve_search(plan.spec, plan.params, plan.k)
    segments = SegmentSet(plan, searched, store)
    read = plan.read(segment, (plan.schema.primary_field.name, plan.field))
    parts: list[pa.RecordBatch] = []
    for keys, vectors in vectors_of(read, read_segment(read, store)):
        found = segments.nearest(vectors, plan.k, params, threads)
        counts = np.diff(found.offsets)
        own = keys.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        others = pa.array(found.keys, keys.type)
        pair = pa.RecordBatch.from_arrays([own, others], schema=schema)
        parts = [forest([*parts, pair], schema)]
    return parts[0] if parts else forest([], schema)

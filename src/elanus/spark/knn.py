"""The kNN join: for each row of a frame, the nearest rows of a collection, by its built indexes.

Two stages. First, each task searches a set of segments for a block of queries: queries go to every set, rows
and indexes move nowhere. Then the hits of each query come together and are reduced to the best. With one set
there is no second stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from elanus.core.errors import InvalidParameter
from elanus.spark.hits import QUERY, hits_schema
from elanus.spark.plain_errors import plain_errors
from elanus.spark.query_vectors import VECTOR, check_k, check_query_type
from elanus.spark.releases import arrow_schema, require
from elanus.spark.searches import SearchJob, best_hits, pinned_job, search_set
from elanus.spark.slots import slots, threads

_SET, _BLOCK, _PLACE = "_set", "_block", "_place"


def knn_join(
    spark: SparkSession,
    target: str,
    queries: DataFrame,
    *,
    field: str,
    k: int,
    query_id: str = "id",
    vector: str = VECTOR,
    filter: str = "",  # noqa: A002 - what clients call it
    params: Mapping[str, Any] | None = None,
    as_of: int | datetime | None = None,
    exact: bool = False,
    **options: str,
) -> DataFrame:
    """Return the ``k`` nearest rows of collection ``target`` for each row of ``queries``.

    Columns of the result: ``query_id`` (that of the query), ``rank`` (1 is the best), ``key`` (the primary
    key of the row found), ``score`` (in the terms of the index's metric). Fewer than ``k`` rows for a query:
    no more are visible, or within the radius.

    ``query_id`` and ``vector``: columns of ``queries``; ids are distinct, vectors are arrays of numbers, or
    their bytes. ``field``: the vector field to search. ``filter``: which rows may be found, in the filter
    language. ``params``: of the search, as clients send them (``ef``, ``nprobe``, ``radius``). ``as_of``: a
    moment of the past, as a hybrid timestamp or a time. ``exact``: compare all rows instead of using indexes.
    ``options``: those of the format ``elanus`` for reading, ``uri`` for example.

    The collection is pinned now, with its index files; the join runs whenever the result is used, and has to
    end within ``lease_s``. Raises the server's errors, `FieldNotFound`, `InvalidParameter`, `NotSupported`
    for a field without dense vectors, and `TimestampTooOld`.
    """
    check_k(k)
    for name in (query_id, vector):
        if name not in queries.columns:
            raise InvalidParameter(
                f"the queries have no column {name}: they have {', '.join(queries.columns)}"
            )
    parallelism = slots(spark)
    job = pinned_job(
        target,
        field=field,
        k=k,
        filter=filter,
        params=params or {},
        as_of=as_of,
        exact=exact,
        parallelism=parallelism,
        options=options,
    )
    asked = queries.select(sf.col(query_id).alias(QUERY), sf.col(vector).alias(VECTOR))
    return joined(spark, job, asked, parallelism, vector)


def joined(
    spark: SparkSession, job: SearchJob, asked: DataFrame, parallelism: int, column: str = VECTOR
) -> DataFrame:
    """Return the hits of the queries ``asked``, of the columns query_id and vector.

    ``column``: what the user calls that of the vectors. Raises `InvalidParameter` for its type.
    """
    require("4.1", "a search", hasattr(asked, "repartitionById"), "search from a newer one")
    vector_type = arrow_schema(StructType([asked.schema[VECTOR]])).field(0).type
    check_query_type(vector_type, job.plan.schema.field(job.plan.field), column)
    query_type = arrow_schema(StructType([asked.schema[QUERY]])).field(0).type
    schema = hits_schema(query_type, job.plan.schema.primary_field.arrow_type)
    result = StructType(
        [
            StructField(f.name, f.dataType, f.name == QUERY and asked.schema[QUERY].nullable)
            for f in from_arrow_schema(schema)
        ]
    )
    if not job.sets:
        return spark.createDataFrame([], result)
    sets = len(job.sets)
    blocks = max(1, parallelism // sets)
    numbers = sf.explode(sf.sequence(sf.lit(0), sf.lit(sets - 1)))
    block = sf.pmod(sf.hash(QUERY), sf.lit(blocks))
    placed = asked.select("*", block.alias(_BLOCK)).select("*", numbers.alias(_SET))
    placed = placed.select("*", (sf.col(_SET) * blocks + sf.col(_BLOCK)).cast("int").alias(_PLACE))
    placed = placed.repartitionById(sets * blocks, _PLACE).select(QUERY, VECTOR, _SET)
    hits = placed.mapInArrow(partial(_search, job, schema, column), result)
    if sets == 1:
        return hits
    reduce = partial(best_hits, schema=schema, k=job.plan.k, bigger=job.bigger_is_better)
    return hits.repartition(QUERY).mapInArrow(reduce, result)


def _search(
    job: SearchJob, schema: pa.Schema, column: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task: all its queries are for one set."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    number = first.column(2)[0].as_py()
    queries = (batch.select([0, 1]) for batch in chain((first,), batches))
    with plain_errors():
        distinct = with_distinct_ids(queries)
        yield from search_set(job.plan, job.sets[number], distinct, schema, threads(), column)


def with_distinct_ids(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on, and raise `InvalidParameter` for an id, in the first column, that is there twice.

    The hits of two queries with one id could not be distinguished. All queries with one id meet in a task.
    Memory: that of the ids.
    """
    kept: list[pa.Array] = []
    for batch in batches:
        ids = batch.column(0)
        if not pa.types.is_nested(ids.type):  # Arrow does not compare those
            kept.append(pa.concat_arrays([ids, ids[:0]]))  # a copy: its buffer is the whole batch's
        yield batch
    if not kept:
        return
    counts = pc.value_counts(pa.chunked_array(kept))
    if len(counts) < (queries := sum(map(len, kept))):
        repeated = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
        raise InvalidParameter(
            f"{queries - len(counts)} of {queries} queries have the id of another one, {repeated!r} for "
            "example: give each query an id of its own"
        )

"""Table functions of SQL: searches, segments and jobs.

``elanus_search(name, vector, k)`` returns the nearest rows of an attached collection: ``rank``, ``key``,
``score``. Further arguments, by name: ``field`` (needed where there are several vector fields), ``filter``,
and ``params`` (JSON text). The vector may be that of a row: ``FROM queries q, LATERAL elanus_search('docs',
q.v, 3)``.

``elanus_segments(name)`` returns the segments of its version, ``elanus_jobs()`` the jobs of the server at the
moment of the query.

A search opens the index files in one task and keeps them for the task's next query. For many queries and
large collections use `elanus.spark.knn_join`, which shares the segments out.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from elanus.core.errors import InvalidParameter
from elanus.core.schema import FieldSchema
from elanus.index import resolve_search
from elanus.spark.native import stored_type
from elanus.spark.opened import OpenCollection
from elanus.spark.plain_errors import plain_errors
from elanus.spark.query_vectors import VECTOR, check_query_type, query_matrix
from elanus.spark.releases import arrow_schema
from elanus.spark.searches import search_plan
from elanus.spark.segment_search import SearchPlan, SegmentSet
from elanus.storage.objects import open_store

_SEGMENTS = StructType(
    [
        StructField("segment_id", LongType()),
        StructField("partition_id", LongType()),
        StructField("rows", LongType()),
        StructField("size_bytes", LongType()),
        StructField("files", IntegerType()),
        StructField("indexes", StringType()),
    ]
)
_JOBS: Mapping[str, tuple[DataType, Callable[[Any], Any]]] = {
    "job_id": (StringType(), str),
    "kind": (StringType(), str),
    "state": (StringType(), str),
    "cause": (StringType(), str),
    "ordered": (StringType(), str),
    "started": (StringType(), str),
    "ended": (StringType(), str),
    "duration_ms": (DoubleType(), float),
    "percent": (DoubleType(), float),
    "rows": (LongType(), int),
    "bytes": (LongType(), int),
    "error": (StringType(), str),
}
_ANSWER_S = 20.0
_SETS_MAX = 4
"""For how many different arguments a task keeps the segments open: with ``LATERAL`` each row may have others,
and each set has the keys of the whole collection in memory."""
_OPTIONS = ("field", "filter", "params")
"""Arguments that a search takes by name, in the order of `_plan`."""


def register_functions(spark: SparkSession, opened: Mapping[str, OpenCollection], status_url: str) -> None:
    """Register the functions for these collections, by the names of their views."""
    held = dict(opened)

    def analyze(
        name: AnalyzeArgument, vector: AnalyzeArgument, k: AnalyzeArgument, **more: AnalyzeArgument
    ) -> AnalyzeResult:
        with plain_errors():
            return _search_columns(held, name, vector, k, more)

    functions: dict[str, Any] = {
        "elanus_search": udtf(_bound(Search, opened=held, analyze=staticmethod(analyze))),
        "elanus_segments": udtf(_bound(Segments, opened=held), returnType=_SEGMENTS),
    }
    if status_url:
        jobs = _bound(Jobs, url=f"{status_url.rstrip('/')}/jobs")
        columns = StructType([StructField(name, kind) for name, (kind, _) in _JOBS.items()])
        functions["elanus_jobs"] = udtf(jobs, returnType=columns)
    for name, function in functions.items():
        spark.udtf.register(name, function)


def _bound(handler: type, **values: object) -> type:
    """A class of its own, which takes the values along to the tasks."""
    return type(handler.__name__, (handler,), values)


class Search:
    """``elanus_search``. A task's searches with the same arguments share the opened segments."""

    opened: Mapping[str, OpenCollection] = {}

    def __init__(self) -> None:
        self._sets: dict[tuple[object, ...], tuple[SearchPlan, SegmentSet]] = {}
        """By arguments, those that were used last at the end."""

    def eval(
        self,
        name: str,
        vector: Any,
        k: int,
        field: str = "",
        filter: str = "",  # noqa: A002
        params: str = "",
    ) -> Iterator[tuple[int, Any, float]]:
        with plain_errors():
            plan, segments = self._segments(name, k, field, filter, params)
            queries = query_matrix(_vector_column(vector), plan.schema.field(plan.field))
            found = segments.nearest(queries, k, resolve_search(plan.spec, plan.params, k))
        keys = found.keys.tolist() if isinstance(found.keys, np.ndarray) else list(found.keys)
        for rank, (key, score) in enumerate(zip(keys, found.scores.tolist(), strict=True), 1):
            yield rank, key, score

    def _segments(self, name: str, *options: Any) -> tuple[SearchPlan, SegmentSet]:
        """Return the opened segments for these arguments; those of the latest arguments are kept."""
        asked = name, *options
        known = self._sets.pop(asked, None)
        while len(self._sets) >= _SETS_MAX:
            del self._sets[next(iter(self._sets))]
        if known is None:
            plan, opened = _plan(self.opened, name, *options), attached(self.opened, name)
            known = plan, SegmentSet(plan, opened.snapshot.segments, open_store(opened.store_url))
        self._sets[asked] = known
        return known


def _plan(
    opened: Mapping[str, OpenCollection], name: str, k: Any, field: Any, where: Any, params: Any
) -> SearchPlan:
    """Plan searches with these arguments, which come as SQL has them. Raises what `search_plan` does."""
    for argument, text in (("field", field), ("filter", where), ("params", params)):
        if not isinstance(text, str):
            raise InvalidParameter(f"elanus_search: {argument} is {text!r}: give a text")
    try:
        given = msgspec.json.decode(params, type=dict[str, Any]) if params else {}
    except msgspec.DecodeError as error:
        raise InvalidParameter(
            f"elanus_search: params is {params!r}: give a JSON object, such as '{{\"ef\": 64}}'"
        ) from error
    collection = attached(opened, name)
    return search_plan(
        collection.snapshot,
        collection.store_url,
        field=field or _only_vector(collection),
        k=k,
        filter=where,
        params=given,
    )


def _vector_column(vector: Any) -> pa.Array:
    """A column of one query vector: bytes, a list of numbers, or null."""
    if vector is None:
        return pa.nulls(1, pa.list_(pa.float32()))
    return pa.array([bytes(vector) if isinstance(vector, bytearray) else vector])


def _search_columns(
    opened: Mapping[str, OpenCollection],
    name: AnalyzeArgument,
    vector: AnalyzeArgument,
    k: AnalyzeArgument,
    more: Mapping[str, AnalyzeArgument],
) -> AnalyzeResult:
    """Return the columns of a search: the key's type is that of the collection.

    Arguments that are constants are checked here, so that what is wrong with them fails before any task.
    """
    if not name.isConstantExpression:
        raise InvalidParameter("elanus_search: the name of the collection has to be a constant")
    if unknown := sorted(more.keys() - set(_OPTIONS)):
        raise InvalidParameter(
            f"elanus_search: there is no argument {unknown[0]}: there are {', '.join(sorted(_OPTIONS))}"
        )
    collection = attached(opened, str(name.value))
    if all(argument.isConstantExpression for argument in (k, *more.values())):
        options = [more[option].value if option in more else "" for option in _OPTIONS]
        plan = _plan(opened, str(name.value), k.value, *options)
        _check_vector(vector, plan.schema.field(plan.field))
    key = stored_type(collection.schema.primary_field.arrow_type)
    columns = {"rank": IntegerType(), "key": key, "score": FloatType()}
    return AnalyzeResult(StructType([StructField(n, kind) for n, kind in columns.items()]))


def _check_vector(vector: AnalyzeArgument, field: FieldSchema) -> None:
    """Raise what `query_matrix` raises for the argument, as far as it is known before the query runs."""
    if vector.isConstantExpression:
        query_matrix(_vector_column(vector.value), field)
    else:
        column = StructType([StructField(VECTOR, vector.dataType)])
        check_query_type(arrow_schema(column).field(0).type, field)


class Segments:
    """``elanus_segments``."""

    opened: Mapping[str, OpenCollection] = {}

    def eval(self, name: str) -> Iterator[tuple[int, int, int, int, int, str]]:
        snapshot = attached(self.opened, name).snapshot
        for m in snapshot.segments:
            built = sorted({f.index_type for f in snapshot.index_files if f.segment_id == m.segment_id})
            yield m.segment_id, m.partition_id, m.rows, m.size_bytes, len(m.insert_logs), ", ".join(built)


class Jobs:
    """``elanus_jobs``."""

    url = ""

    def eval(self) -> Iterator[tuple[Any, ...]]:
        with urllib.request.urlopen(self.url, timeout=_ANSWER_S) as answer:
            jobs = msgspec.json.decode(answer.read(), type=list[dict[str, Any]])
        for job in jobs:
            yield tuple(made(job[name]) for name, (_, made) in _JOBS.items())


def attached(opened: Mapping[str, OpenCollection], name: str) -> OpenCollection:
    """Return the collection of that view. Raises `InvalidParameter`."""
    if name not in opened:
        raise InvalidParameter(f"collection {name} is not attached: there are {', '.join(sorted(opened))}")
    return opened[name]


def _only_vector(opened: OpenCollection) -> str:
    """Return the vector field that a search without ``field`` is for."""
    names = [f.name for f in opened.schema.fields if f.kind.vector is not None]
    if len(names) != 1:
        raise InvalidParameter(
            f"collection {opened.name} has the vector fields {', '.join(names)}: name the one to search by "
            "field => ..."
        )
    return names[0]

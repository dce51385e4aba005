"""TextEmbedding functions at the proxy: rows are written with vectors, texts are searched with as vectors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fakes import CID, DEFAULT, index
from fakes import collection as described
from provider_stand_in import answer_of, vector_of
from proxy_bench import Bench, resolved
from read_bench import Bench as ReadBench
from read_bench import search
from test_hybrid import Verbs

from elanus.core.consistency import ConsistencyLevel
from elanus.core.embedding import TEI
from elanus.core.errors import FunctionFailed, NotSupported
from elanus.core.functions import Function
from elanus.core.ids import FieldID
from elanus.core.imports import WriteMode
from elanus.core.messages import InsertMessage
from elanus.core.rankers import Rrf
from elanus.core.rows import absent_column
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.proxy.api.collections import CreateCollection
from elanus.proxy.api.imports import ImportOptions
from elanus.proxy.api.search import HybridSearch
from elanus.proxy.api.writes import Insert, Update
from elanus.proxy.embedding import Embedder, EmbeddingPolicy, ProviderAccess
from elanus.proxy.embedding.formats import Request
from elanus.proxy.role.cache import CachedCollection, collection_view
from elanus.text import with_computed_columns

DENSE = FieldID(102)
SCHEMA = CollectionSchema(
    "c",
    (
        FieldSchema(FieldID(100), "pk", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=99),
        FieldSchema(DENSE, "dense", DataType.FLOAT_VECTOR, dim=2, is_function_output=True),
        FieldSchema(FieldID(103), "n", DataType.INT64),
    ),
    functions=(Function("f", "TextEmbedding", ("text",), ("dense",), params={"provider": "tei"}),),
)
DOCS = described(SCHEMA)


class Provider:
    """Answers without a network, unless it is ``down``."""

    def __init__(self) -> None:
        self.down = False
        self.texts: list[list[str]] = []
        policy = EmbeddingPolicy({TEI: ProviderAccess("http://t")})
        self.embedder = Embedder(policy, self.post)

    def post(self, request: Request, deadline_s: float) -> bytes:
        body = json.loads(request.body)
        self.texts.append(body["inputs"])
        if self.down:
            raise FunctionFailed("Call service failed, errs:[down]: t")
        return json.dumps(answer_of(request.url, body, 2)).encode()


def in_a_thread(work: Callable[[Bench, Provider], object]) -> None:
    async def run() -> None:
        bench, provider = Bench(DOCS), Provider()
        bench.proxy.embedder = provider.embedder
        await bench.proxy.start()
        try:
            await asyncio.to_thread(work, bench, provider)
        finally:
            await bench.proxy.stop()

    asyncio.run(run())


def rows(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(len(texts))),
            pa.array(texts),
            absent_column(SCHEMA.field("dense"), len(texts)),
            pa.array([7] * len(texts)),
        ],
        schema=SCHEMA.arrow_schema,
    )


def vectors(column: pa.Array) -> list[list[float]]:
    found: list[list[float]] = SCHEMA.field("dense").vector.to_matrix(column).tolist()
    return found


def test_rows_are_written_with_their_vectors() -> None:
    def work(bench: Bench, provider: Provider) -> None:
        for write in (bench.verbs.insert, bench.verbs.upsert):
            write(Insert(resolved(DOCS), "", rows("ab", "c")))
        inserted, upserted = bench.messages()
        for message in (inserted, upserted):
            written = message.rows
            assert vectors(written.column("dense")) == [vector_of("ab", 2), vector_of("c", 2)]
        assert isinstance(inserted, InsertMessage)
        assert provider.texts == [["ab", "c"]] * 2

    in_a_thread(work)


def test_an_update_keeps_the_text_and_computes_its_vector() -> None:
    def work(bench: Bench, provider: Provider) -> None:
        bench.nodes.rows = {"pk": pa.array([1, 0]), "text": pa.array(["one", "zero"])}
        sent = pa.RecordBatch.from_pydict({"pk": pa.array([0, 1]), "n": pa.array([8, 9])})
        bench.verbs.update(Update(resolved(DOCS), "", sent))
        assert bench.nodes.asked[0].output_fields == ("pk", "text")
        assert provider.texts == [["zero", "one"]]
        (message,) = bench.messages()
        assert vectors(message.rows.column("dense")) == [vector_of("zero", 2), vector_of("one", 2)]
        assert message.rows.column("n").to_pylist() == [8, 9]

    in_a_thread(work)


def test_without_its_provider_nothing_is_written() -> None:
    def work(bench: Bench, provider: Provider) -> None:
        provider.down = True
        with pytest.raises(FunctionFailed, match="down"):
            bench.verbs.insert(Insert(resolved(DOCS), "", rows("ab")))
        assert bench.messages() == []

    in_a_thread(work)


def test_a_collection_is_made_only_if_its_provider_answers() -> None:
    def work(bench: Bench, provider: Provider) -> None:
        provider.down = True
        with pytest.raises(FunctionFailed, match=r"check function \[f:TextEmbedding\] failed"):
            bench.verbs.create_collection(
                CreateCollection("default", SCHEMA, 1, ConsistencyLevel.BOUNDED, {})
            )
        assert provider.texts == [["check"]]

    in_a_thread(work)


def test_an_import_is_refused() -> None:
    def work(bench: Bench, provider: Provider) -> None:
        with pytest.raises(NotSupported, match="do not call the provider of its function f; insert the rows"):
            bench.verbs.start_import("default", "c", "", ["a.parquet"])
        bench.verbs.start_import("default", "c", "", ["a.parquet"], ImportOptions(mode=WriteMode.DELETE))

    in_a_thread(work)


def test_jobs_leave_the_vectors_as_they_are() -> None:
    given = rows("ab")
    assert with_computed_columns(SCHEMA, given) is given


def cached() -> CachedCollection:
    view = collection_view("default", DOCS)
    params = {"index_type": "FLAT", "metric_type": "L2"}
    return CachedCollection(view, {"_default": DEFAULT}, (replace(index(field_id=DENSE), params=params),))


def read_bench() -> tuple[Any, Provider]:
    bench, provider = ReadBench(), Provider()
    bench.verbs._current().embedder = provider.embedder
    bench.verbs = Verbs(bench.verbs._current, None, tuple)  # type: ignore[assignment,arg-type]
    return bench, provider


def asked(**changes: Any) -> Any:
    own = {"collection": cached(), "vector_field": "dense", "queries": np.empty((0, 0), np.float32)}
    return search(**{**own, "output_fields": (), "texts": ("ab",), **changes})


def test_the_texts_of_a_search_become_its_vectors() -> None:
    bench, provider = read_bench()
    bench.verbs.search(asked())
    (sent,) = bench.nodes.asked
    assert sent.queries.tolist() == [vector_of("ab", 2)]
    assert (sent.collection_id, sent.field_id) == (CID, DENSE)
    assert provider.texts == [["ab"]]


def test_a_hybrid_search_has_texts_and_vectors() -> None:
    bench, provider = read_bench()
    given = np.array([[1.0, 2.0]], np.float32)
    parts = (asked(), asked(texts=(), queries=given))
    bench.verbs.hybrid_search(HybridSearch(cached(), (), parts, Rrf(60.0), 3, 0, (), -1, asked().consistency))
    assert [s.queries.tolist() for s in bench.nodes.asked] == [[vector_of("ab", 2)], given.tolist()]
    assert provider.texts == [["ab"]]


def test_without_its_provider_nobody_is_searched() -> None:
    bench, provider = read_bench()
    provider.down = True
    with pytest.raises(FunctionFailed, match="down"):
        bench.verbs.search(asked())
    assert bench.nodes.asked == []

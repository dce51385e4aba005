"""langchain-milvus in ordinary use: a vector store of texts, embedded by a model that knows a few words."""

from __future__ import annotations

import asyncio

from checks import check, uri
from embedding import embed
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_milvus import BM25BuiltInFunction, Milvus, MilvusCollectionHybridSearchRetriever
from pymilvus import (
    Collection,
    CollectionSchema,
    DataType,
    FieldSchema,
    MilvusClient,
    WeightedRanker,
    connections,
)

NAME = "langchain_texts"
TEXTS = ["red apple", "green apple", "red car", "blue sea", "green sea"]


class WordCounts(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return embed(text)


HNSW = {"index_type": "HNSW", "metric_type": "L2", "params": {"M": 8, "efConstruction": 64}}


def store(name: str = NAME, **options: object) -> Milvus:
    return Milvus(WordCounts(), collection_name=name, connection_args={"uri": uri()}, **options)


def texts(documents: list[Document]) -> list[str]:
    return [document.page_content for document in documents]


@check("`from_texts` with metadata and ids, and a similarity search right after it")
def _() -> None:
    made = Milvus.from_texts(
        TEXTS,
        WordCounts(),
        [{"place": n} for n in range(5)],
        ids=[f"t{n}" for n in range(5)],
        collection_name=NAME,
        connection_args={"uri": uri()},
        index_params=HNSW,
        drop_old=True,
    )
    assert texts(made.similarity_search("green sea", k=2))[0] == "green sea"


@check("a second store on the same collection; scores; filter expression; search parameters")
def _() -> None:
    again = store()
    ((best, score), *_) = again.similarity_search_with_score("red car", k=3, param={"ef": 32})
    assert (best.page_content, best.metadata["place"], score) == ("red car", 2, 0.0)
    assert sorted(texts(again.similarity_search("apple", k=5, expr="place < 2"))) == [
        "green apple",
        "red apple",
    ]
    assert texts(again.similarity_search_by_vector(embed("blue sea"), k=1)) == ["blue sea"]


@check("retriever, maximal marginal relevance")
def _() -> None:
    retriever = store().as_retriever(search_kwargs={"k": 1})
    assert texts(retriever.invoke("green apple")) == ["green apple"]
    spread = texts(store().max_marginal_relevance_search("red apple", k=2, fetch_k=5, lambda_mult=0.1))
    assert spread[0] == "red apple"
    assert spread[1] in {"blue sea", "green sea"}


@check("`add_documents`, `get_pks`, `search_by_metadata`, `delete` by ids and by expression")
def _() -> None:
    made = store()
    made.add_documents([Document("old boat", metadata={"place": 7})], ids=["boat"])
    assert made.get_pks("place == 7") == ["boat"]
    assert texts(made.search_by_metadata("place == 7")) == ["old boat"]
    assert made.delete(ids=["boat"])
    assert made.get_pks("place == 7") == []
    assert made.delete(expr="place == 4")
    assert sorted(made.get_pks("place >= 0")) == ["t0", "t1", "t2", "t3"]


@check("`upsert`")
def _() -> None:
    made = store()
    made.upsert(ids=["t0"], documents=[Document("red boat", metadata={"place": 0})])
    assert texts(made.search_by_metadata("place == 0")) == ["red boat"]


@check("the asynchronous methods")
def _() -> None:
    async def use() -> None:
        made = store()
        await made.aadd_texts(["old car"], [{"place": 9}], ids=["a"])
        assert texts(await made.asimilarity_search("old car", k=1)) == ["old car"]
        assert await made.adelete(ids=["a"])
        assert await made.aget_pks("place == 9") == []
        await made.aclient.close()

    asyncio.run(use())


@check("metadata of any shape in a dynamic field; automatic ids")
def _() -> None:
    made = store("langchain_dynamic", enable_dynamic_field=True, auto_id=True, drop_old=True)
    made.add_texts(["red apple", "blue car"], [{"owner": {"name": "ann"}}, {"wheels": 4}])
    assert texts(made.similarity_search("car", k=2, expr="wheels == 4")) == ["blue car"]
    assert texts(made.similarity_search("car", k=2, expr='owner["name"] == "ann"')) == ["red apple"]
    made.drop()


@check("partition key")
def _() -> None:
    made = store("langchain_tenants", partition_key_field="tenant", auto_id=True, drop_old=True)
    made.add_texts(["red apple", "blue car"], [{"tenant": "ann"}, {"tenant": "bob"}])
    assert texts(made.similarity_search("car", k=2, expr='tenant == "ann"')) == ["red apple"]
    made.drop()


@check("full text search (BM25), and fused with vectors")
def _() -> None:
    made = Milvus.from_texts(
        TEXTS,
        WordCounts(),
        builtin_function=BM25BuiltInFunction(),
        vector_field=["dense", "sparse"],
        collection_name="langchain_bm25",
        connection_args={"uri": uri()},
        drop_old=True,
    )
    by_words = {"ranker_type": "weighted", "ranker_params": {"weights": [0.0, 1.0]}}
    assert texts(made.similarity_search("the car", k=1, **by_words)) == ["red car"]
    assert texts(made.similarity_search("blue sea", k=2, ranker_type="rrf"))[0] == "blue sea"
    made.drop()


@check("full text search: filters, `upsert`, score threshold, MMR, the asynchronous methods")
def _() -> None:
    async def use() -> None:
        made = store(
            "langchain_words",
            builtin_function=BM25BuiltInFunction(),
            vector_field=["dense", "sparse"],
            drop_old=True,
        )
        await made.aadd_texts(TEXTS, [{"place": n} for n in range(5)], ids=[f"t{n}" for n in range(5)])
        by_words = {"ranker_type": "weighted", "ranker_params": {"weights": [0.0, 1.0]}}
        found = await made.asimilarity_search("green", k=5, expr="place > 1", **by_words)
        assert texts(found)[0] == "green sea"
        await made.aupsert(ids=["t4"], documents=[Document("old boat", metadata={"place": 4})])
        assert texts(await made.asimilarity_search("old boats boat", k=1, **by_words)) == ["old boat"]
        found = await made.asearch_by_metadata("place in [3, 4]", fields=["text"])
        assert texts(found) == ["blue sea", "old boat"]
        await made.aclient.close()

    asyncio.run(use())
    near = store().as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.9, "k": 5}
    )
    assert texts(near.invoke("blue sea")) == ["blue sea"]
    spread = store().as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 4})
    assert len(spread.invoke("red apple")) == 2


@check("words alone (BM25)")
def _() -> None:
    made = Milvus.from_texts(
        TEXTS,
        None,
        builtin_function=BM25BuiltInFunction(
            analyzer_params={"type": "english"}, enable_match=True, output_field_names="sparse"
        ),
        vector_field="sparse",
        collection_name="langchain_words",
        connection_args={"uri": uri()},
        drop_old=True,
    )
    ((best, score), *others) = made.similarity_search_with_score("cars", k=3)
    assert (best.page_content, others) == ("red car", [])
    assert score > 0
    apples = made.search_by_metadata("text_match(text, 'apples')", fields=["text"])
    assert texts(apples) == ["red apple", "green apple"]


@check("`MilvusCollectionHybridSearchRetriever`")
def _() -> None:
    client = MilvusClient(uri())
    fields = [
        FieldSchema("id", DataType.INT64, is_primary=True, auto_id=True),
        FieldSchema("text", DataType.VARCHAR, max_length=99),
        FieldSchema("first", DataType.FLOAT_VECTOR, dim=8),
        FieldSchema("second", DataType.FLOAT_VECTOR, dim=8),
    ]
    client.create_collection("langchain_hybrid", schema=CollectionSchema(fields))
    index = client.prepare_index_params()
    for name in ("first", "second"):
        index.add_index(name, index_type="HNSW", metric_type="IP", M=8, efConstruction=64)
    client.create_index("langchain_hybrid", index)
    rows = [{"text": text, "first": embed(text), "second": embed(text[::-1])} for text in TEXTS]
    client.insert("langchain_hybrid", rows)
    client.load_collection("langchain_hybrid")
    connections.connect(alias="default", uri=uri())
    retriever = MilvusCollectionHybridSearchRetriever(
        collection=Collection("langchain_hybrid"),
        rerank=WeightedRanker(0.9, 0.1),
        anns_fields=["first", "second"],
        field_embeddings=[WordCounts(), WordCounts()],
        field_search_params=[{"metric_type": "IP", "params": {"ef": 32}}] * 2,
        top_k=1,
        text_field="text",
    )
    assert texts(retriever.invoke("green sea")) == ["green sea"]


@check("several vectors of a row, searched together")
def _() -> None:
    made = Milvus(
        [WordCounts(), WordCounts()],
        collection_name="langchain_two",
        connection_args={"uri": uri()},
        vector_field=["first", "second"],
        drop_old=True,
    )
    made.add_texts(["red apple", "blue car"])
    (found,) = made.similarity_search("car", k=1)
    assert found.page_content == "blue car"


@check("drop")
def _() -> None:
    store().drop()
    client = MilvusClient(uri())
    for name in (
        "langchain_two",
        "langchain_tenants",
        "langchain_bm25",
        "langchain_words",
        "langchain_hybrid",
    ):
        client.drop_collection(name)
    assert [name for name in client.list_collections() if name.startswith("langchain")] == []

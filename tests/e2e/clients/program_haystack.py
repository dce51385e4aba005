"""milvus-haystack in ordinary use: a document store with given embeddings, and its retriever."""

from __future__ import annotations

from checks import check, uri
from embedding import embed
from haystack import Document, Pipeline
from haystack.dataclasses import SparseEmbedding
from milvus_haystack import MilvusDocumentStore, MilvusEmbeddingRetriever
from milvus_haystack.function import BM25BuiltInFunction
from milvus_haystack.milvus_embedding_retriever import (
    MilvusHybridRetriever,
    MilvusSparseEmbeddingRetriever,
)
from pymilvus import MilvusClient, WeightedRanker

NAME = "haystack_texts"
TEXTS = ["red apple", "green apple", "red car", "blue sea", "green sea"]


def store(name: str = NAME, **options: object) -> MilvusDocumentStore:
    return MilvusDocumentStore(connection_args={"uri": uri()}, collection_name=name, **options)


def contents(documents: list[Document]) -> list[str]:
    return sorted(str(document.content) for document in documents)


def document(number: int) -> Document:
    text = TEXTS[number]
    meta = {"number": number, "fruit": "apple" in text}
    return Document(id=f"d{number}", content=text, meta=meta, embedding=embed(text))


made = store(drop_old=True)


@check("write documents, count them right after it")
def _() -> None:
    assert made.write_documents([document(n) for n in range(5)]) == 5
    assert made.count_documents() == 5


@check("filters: comparisons, `in`, AND, OR")
def _() -> None:
    def found(filters: dict[str, object]) -> list[str]:
        return contents(made.filter_documents(filters))

    assert found({"field": "meta.number", "operator": "==", "value": 3}) == ["blue sea"]
    assert found({"field": "meta.number", "operator": "in", "value": [0, 1]}) == ["green apple", "red apple"]
    less = {"field": "meta.number", "operator": "<", "value": 3}
    apple = {"field": "meta.fruit", "operator": "==", "value": True}
    assert found({"operator": "AND", "conditions": [less, apple]}) == ["green apple", "red apple"]
    last = {"field": "meta.number", "operator": ">=", "value": 4}
    assert found({"operator": "OR", "conditions": [last, apple]}) == ["green apple", "green sea", "red apple"]


@check("the retriever in a pipeline, with a filter")
def _() -> None:
    pipeline = Pipeline()
    pipeline.add_component("retriever", MilvusEmbeddingRetriever(document_store=store(), top_k=2))
    answer = pipeline.run({"retriever": {"query_embedding": embed("green sea")}})
    assert answer["retriever"]["documents"][0].content == "green sea"
    filters = {"field": "meta.fruit", "operator": "==", "value": True}
    answer = pipeline.run({"retriever": {"query_embedding": embed("green sea"), "filters": filters}})
    assert answer["retriever"]["documents"][0].content == "green apple"


@check("the store and the retriever as dictionaries and back")
def _() -> None:
    retriever = MilvusEmbeddingRetriever.from_dict(
        MilvusEmbeddingRetriever(document_store=store(), top_k=1).to_dict()
    )
    (found,) = retriever.run(query_embedding=embed("blue sea"))["documents"]
    assert (found.id, found.meta["number"]) == ("d3", 3)


@check("delete documents, and they are gone right after it")
def _() -> None:
    made.delete_documents(["d0", "d1"])
    assert contents(made.filter_documents()) == ["blue sea", "green sea", "red car"]
    assert made.count_documents() == 3


@check("write documents with sparse embeddings")
def _() -> None:
    sparse = store("haystack_sparse", sparse_vector_field="sparse", drop_old=True)
    weights = SparseEmbedding(indices=[0, 3], values=[0.5, 0.25])
    sparse.write_documents([Document(content="red", embedding=embed("red"), sparse_embedding=weights)])
    assert sparse.count_documents() == 1
    MilvusClient(uri()).drop_collection("haystack_sparse")


@check("the sparse and the hybrid retriever, over given sparse embeddings")
def _() -> None:
    both = store("haystack_sparse", sparse_vector_field="sparse", drop_old=True)
    documents = [document(n) for n in range(5)]
    for n, one in enumerate(documents):
        one.sparse_embedding = SparseEmbedding(indices=[n, 9], values=[1.0, 0.1])
    both.write_documents(documents)
    asked = SparseEmbedding(indices=[3], values=[1.0])
    by_words = MilvusSparseEmbeddingRetriever(document_store=both, top_k=1)
    assert contents(by_words.run(query_sparse_embedding=asked)["documents"]) == ["blue sea"]
    hybrid = MilvusHybridRetriever(document_store=both, top_k=2, reranker=WeightedRanker(0.5, 0.5))
    answer = hybrid.run(query_embedding=embed("blue sea"), query_sparse_embedding=asked)["documents"]
    assert answer[0].content == "blue sea"
    MilvusClient(uri()).drop_collection("haystack_sparse")


@check("BM25 by the server: the sparse and the hybrid retriever, with a filter")
def _() -> None:
    words = store(
        "haystack_words",
        builtin_function=[BM25BuiltInFunction(input_field_names="text", output_field_names="sparse")],
        sparse_vector_field="sparse",
        drop_old=True,
    )
    words.write_documents([document(n) for n in range(5)])
    by_words = MilvusSparseEmbeddingRetriever(document_store=words, top_k=5)
    assert contents(by_words.run(query_text="the sea")["documents"]) == ["blue sea", "green sea"]
    apples = {"field": "meta.fruit", "operator": "==", "value": True}
    assert contents(by_words.run(query_text="green", filters=apples)["documents"]) == ["green apple"]
    hybrid = MilvusHybridRetriever(document_store=words, top_k=1)
    answer = hybrid.run(query_embedding=embed("green sea"), query_text="green sea")["documents"]
    assert contents(answer) == ["green sea"]
    MilvusClient(uri()).drop_collection("haystack_words")


@check("drop")
def _() -> None:
    client = MilvusClient(uri())
    client.drop_collection(NAME)
    assert [name for name in client.list_collections() if name.startswith("haystack")] == []

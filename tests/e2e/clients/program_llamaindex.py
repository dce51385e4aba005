"""LlamaIndex in ordinary use: nodes with their embeddings, filters, an index over them."""

from __future__ import annotations

import asyncio

from checks import DIM, check, lacks, uri
from embedding import embed
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.vector_stores.milvus import MilvusVectorStore
from pymilvus import DataType, MilvusClient

NAME = "llama_texts"
TEXTS = ["red apple", "green apple", "red car", "blue sea", "green sea"]


class WordCounts(BaseEmbedding):
    def _get_query_embedding(self, query: str) -> list[float]:
        return embed(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return embed(text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return embed(query)


def store(name: str = NAME, **options: object) -> MilvusVectorStore:
    return MilvusVectorStore(
        uri=uri(), collection_name=name, dim=DIM, similarity_metric="L2", use_async_client=False, **options
    )


def node(number: int) -> TextNode:
    text = TEXTS[number]
    made = TextNode(
        id_=f"n{number}", text=text, embedding=embed(text), metadata={"number": number, "word": text[:3]}
    )
    made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=f"doc{number // 2}")
    return made


def where(key: str, operator: FilterOperator, value: object) -> MetadataFilter:
    return MetadataFilter(key=key, operator=operator, value=value)


def found(made: MilvusVectorStore, text: str, k: int = 5, **options: object) -> list[str]:
    """The texts, the nearest first."""
    answer = made.query(VectorStoreQuery(query_embedding=embed(text), similarity_top_k=k, **options))
    return [found.text for found in answer.nodes]


made = store(overwrite=True)


@check("`add` nodes, and a query right after it")
def _() -> None:
    assert made.add([node(n) for n in range(5)]) == [f"n{n}" for n in range(5)]
    assert found(made, "green sea", k=1) == ["green sea"]


@check("metadata filters: ==, !=, >, in, not in, AND, OR")
def _() -> None:
    def ids(*filters: MetadataFilter, condition: FilterCondition = FilterCondition.AND) -> list[str]:
        chosen = MetadataFilters(filters=list(filters), condition=condition)
        return sorted(one.node_id for one in made.get_nodes(filters=chosen))

    assert ids(where("word", FilterOperator.EQ, "red")) == ["n0", "n2"]
    assert ids(where("word", FilterOperator.NE, "red")) == ["n1", "n3", "n4"]
    assert ids(where("number", FilterOperator.GT, 3)) == ["n4"]
    assert ids(where("word", FilterOperator.IN, ["blu", "gre"])) == ["n1", "n3", "n4"]
    assert ids(where("number", FilterOperator.NIN, [0, 1, 2])) == ["n3", "n4"]
    both = [where("word", FilterOperator.EQ, "red"), where("number", FilterOperator.LT, 1)]
    assert ids(*both) == ["n0"]
    assert ids(*both[:1], where("number", FilterOperator.EQ, 4), condition=FilterCondition.OR) == [
        "n0",
        "n2",
        "n4",
    ]


@check("a query with filters, among given ids, with maximal marginal relevance")
def _() -> None:
    red = MetadataFilters(filters=[where("word", FilterOperator.EQ, "red")])
    assert found(made, "red car", filters=red) == ["red car", "red apple"]
    assert found(made, "red apple", node_ids=["n3", "n1"]) == ["green apple", "blue sea"]
    spread = found(made, "red apple", k=2, mode=VectorStoreQueryMode.MMR)
    assert spread[0] == "red apple"
    assert len(spread) == 2


@check("`get_nodes`, `delete_nodes`, `delete` of a document's nodes")
def _() -> None:
    assert sorted(one.text for one in made.get_nodes(node_ids=["n3", "n4"])) == ["blue sea", "green sea"]
    made.delete_nodes(node_ids=["n4"])
    assert made.get_nodes(node_ids=["n4"]) == []
    made.delete(ref_doc_id="doc0")
    assert found(made, "red apple") == ["red car", "blue sea"]


@check("the filter `is_empty`")
def _() -> None:
    empty = MetadataFilters(
        filters=[MetadataFilter(key="word", operator=FilterOperator.IS_EMPTY, value=None)]
    )
    assert made.get_nodes(filters=empty) == []  # every word is text, which has no length as an array


@check("a `VectorStoreIndex` over documents, its retriever")
def _() -> None:
    over = store("llama_index", overwrite=True)
    documents = [Document(text=text, metadata={}) for text in TEXTS]
    context = StorageContext.from_defaults(vector_store=over)
    index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=WordCounts())
    (best,) = index.as_retriever(similarity_top_k=1).retrieve("blue sea")
    assert best.text == "blue sea"


@check("the asynchronous methods")
def _() -> None:
    async def use() -> None:
        other = MilvusVectorStore(uri=uri(), collection_name=NAME, dim=DIM, similarity_metric="L2")
        await other.async_add([node(0)])
        answer = await other.aquery(VectorStoreQuery(query_embedding=embed("red apple"), similarity_top_k=1))
        assert [one.node_id for one in answer.nodes] == ["n0"]
        await other.adelete_nodes(node_ids=["n0"])
        assert await other.aget_nodes(node_ids=["n0"]) == []
        await other.aclient.close()

    asyncio.run(use())


@check("hybrid search with BM25")
def _() -> None:
    made = store("llama_sparse", enable_sparse=True)
    made.add([node(number) for number in range(len(TEXTS))])
    answer = made.query(
        VectorStoreQuery(
            query_embedding=embed("red car"),
            query_str="car",
            similarity_top_k=1,
            mode=VectorStoreQueryMode.HYBRID,
        )
    )
    assert [found.text for found in answer.nodes] == ["red car"]


@check("words alone, filters with hybrid search, a weighted ranker, the asynchronous methods")
def _() -> None:
    async def use() -> None:
        made = MilvusVectorStore(
            uri=uri(),
            collection_name="llama_words",
            dim=DIM,
            enable_sparse=True,
            overwrite=True,
            hybrid_ranker="WeightedRanker",
            hybrid_ranker_params={"weights": [0.2, 0.8]},
        )
        await made.async_add([node(number) for number in range(len(TEXTS))])
        late = MetadataFilters(filters=[where("number", FilterOperator.GTE, 2)])

        async def asked(mode: VectorStoreQueryMode, words: str, **options: object) -> list[str]:
            query = VectorStoreQuery(
                query_embedding=embed(words), query_str=words, mode=mode, similarity_top_k=2, **options
            )
            answer = await made.aquery(query)
            assert [one.text for one in made.query(query).nodes] == [one.text for one in answer.nodes]
            return [one.text for one in answer.nodes]

        assert await asked(VectorStoreQueryMode.TEXT_SEARCH, "the red") == ["red apple", "red car"]
        assert await asked(VectorStoreQueryMode.SPARSE, "red", filters=late) == ["red car"]
        assert (await asked(VectorStoreQueryMode.HYBRID, "green sea", filters=late))[0] == "green sea"
        assert (await asked(VectorStoreQueryMode.MMR, "red apple"))[0] == "red apple"
        await made.aclear()
        await made.aclient.close()

    asyncio.run(use())


@check("`upsert_mode`, scalar fields of the schema")
def _() -> None:
    kept = store(
        "llama_upsert",
        upsert_mode=True,
        scalar_field_names=["number"],
        scalar_field_types=[DataType.INT64],
        overwrite=True,
    )
    kept.add([node(number) for number in range(3)])
    changed = node(1)
    changed.set_content("old boat")
    kept.add([changed])
    assert sorted(one.text for one in kept.get_nodes(node_ids=["n0", "n1", "n2"])) == [
        "old boat",
        "red apple",
        "red car",
    ]
    late = MetadataFilters(filters=[where("number", FilterOperator.GT, 0)])
    assert sorted(one.node_id for one in kept.get_nodes(filters=late)) == ["n1", "n2"]
    kept.delete_nodes(filters=late)
    assert found(kept, "red car") == ["red apple"]


@lacks("the index GPU_CAGRA", "GPU_CAGRA")
def _() -> None:
    store("llama_gpu", index_config={"index_type": "GPU_CAGRA"})


@check("`clear`")
def _() -> None:
    made.clear()
    client = MilvusClient(uri())
    for name in ("llama_index", "llama_gpu", "llama_sparse", "llama_upsert"):
        client.drop_collection(name)
    assert [name for name in client.list_collections() if name.startswith("llama")] == []

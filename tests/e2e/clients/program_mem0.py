"""mem0 in ordinary use: memories of two users, embedded without a model and stored as they are said."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

DIRECTORY = tempfile.mkdtemp()
# read when mem0 is imported: its own files go nowhere else, and it reports to nobody
os.environ |= {"MEM0_DIR": DIRECTORY, "MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none"}

from checks import DIM, check, uri  # noqa: E402
from embedding import embed  # noqa: E402
from mem0 import AsyncMemory, Memory  # noqa: E402
from mem0.embeddings.base import EmbeddingBase  # noqa: E402
from pymilvus import MilvusClient  # noqa: E402

NAME = "mem0_memories"


class WordCounts(EmbeddingBase):  # type: ignore[misc]
    def embed(self, text: str, memory_action: object = None) -> list[float]:
        return embed(text)


def memories(answer: dict[str, Any]) -> list[str]:
    return sorted(found["memory"] for found in answer["results"])


def of(user: str, **more: object) -> dict[str, object]:
    """The filters that each read of a user's memories must have."""
    return {"user_id": user, **more}


def new_memory(kind: type[Any] = Memory, **options: object) -> Any:
    store = {
        "url": uri(),
        "token": "",
        "collection_name": NAME,
        "embedding_model_dims": DIM,
        "metric_type": "COSINE",
        **options,
    }
    made = kind.from_config(
        {
            "vector_store": {"provider": "milvus", "config": store},
            "history_db_path": str(Path(DIRECTORY) / "history.db"),
        }
    )
    made.embedding_model = WordCounts()
    return made


kept: dict[str, str] = {}


@check("open a store that is not there yet, and again")
def _() -> None:
    new_memory()
    assert new_memory().get_all(filters=of("ann"))["results"] == []


memory = new_memory()


@check("`add`, and `get` of the memory right after it")
def _() -> None:
    for user, text in [("ann", "red apple"), ("ann", "green sea"), ("bob", "red car"), ("bob", "old boat")]:
        (added,) = memory.add(text, user_id=user, infer=False, metadata={"words": text.split()[1]})["results"]
        kept[text] = added["id"]
        assert memory.get(added["id"])["memory"] == text


@check("`search` of one user's memories: vectors and BM25 of the words, a threshold")
def _() -> None:
    found = memory.search("apple", filters=of("ann"), top_k=1)["results"]
    assert [one["memory"] for one in found] == ["red apple"]
    assert memories(memory.search("apple", filters=of("bob"), threshold=0.0)) == ["old boat", "red car"]
    assert memories(memory.search("old boat", filters=of("bob"), threshold=0.9)) == ["old boat"]


@check("the store's `keyword_search`: BM25 with a filter")
def _() -> None:
    (best, *others) = memory.vector_store.keyword_search("boat", top_k=3, filters=of("bob"))
    assert (best.payload["data"], others) == ("old boat", [])
    assert best.score > 0
    assert memory.vector_store.keyword_search("boat", filters=of("ann")) == []


@check("filters on metadata")
def _() -> None:
    assert memories(memory.get_all(filters=of("bob", words="boat"))) == ["old boat"]
    assert memories(memory.search("red", filters=of("ann", words="apple"))) == ["red apple"]
    assert memories(memory.search("red", filters=of("bob", words="*"), threshold=0.0)) == [
        "old boat",
        "red car",
    ]


@check("`get_all`")
def _() -> None:
    assert memories(memory.get_all(filters=of("ann"))) == ["green sea", "red apple"]
    assert len(memory.get_all(filters=of("ann"), top_k=1)["results"]) == 1


@check("`update`, its history, and its words in the next search")
def _() -> None:
    memory.update(kept["red car"], "blue car")
    assert memory.get(kept["red car"])["memory"] == "blue car"
    assert [entry["event"] for entry in memory.history(kept["red car"])] == ["ADD", "UPDATE"]
    words = memory.vector_store.keyword_search("blue", filters=of("bob"))
    assert [one.id for one in words] == [kept["red car"]]
    assert memory.vector_store.keyword_search("red", filters=of("bob")) == []


@check("the asynchronous memory")
def _() -> None:
    async def use() -> None:
        other = new_memory(AsyncMemory)
        added = await other.add("old sea", user_id="cid", infer=False)
        found = await other.search("sea", filters=of("cid"), top_k=1)
        assert [one["memory"] for one in found["results"]] == ["old sea"]
        await other.delete(added["results"][0]["id"])
        assert (await other.get_all(filters=of("cid")))["results"] == []

    asyncio.run(use())


@check("`delete`, `delete_all` of one user")
def _() -> None:
    memory.delete(kept["green sea"])
    assert memories(memory.get_all(filters=of("ann"))) == ["red apple"]
    memory.delete_all(user_id="ann")
    assert memories(memory.get_all(filters=of("ann"))) == []
    assert memories(memory.get_all(filters=of("bob"))) == ["blue car", "old boat"]


@check("the metric L2")
def _() -> None:
    other = new_memory(collection_name="mem0_l2", metric_type="L2")
    for text in ("red apple", "green sea"):
        other.add(text, user_id="ann", infer=False)
    assert memories(other.search("green sea", filters=of("ann"), top_k=1)) == ["green sea"]
    other.reset()
    assert other.get_all(filters=of("ann"))["results"] == []


@check("drop")
def _() -> None:
    client = MilvusClient(uri())
    for name in client.list_collections():
        if name.startswith("mem0"):
            client.drop_collection(name)

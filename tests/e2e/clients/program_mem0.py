"""mem0 in ordinary use: memories of two users, embedded without a model and stored as they are said."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

DIRECTORY = tempfile.mkdtemp()
# read when mem0 is imported: its own files go nowhere else, and it reports to nobody
os.environ |= {"MEM0_DIR": DIRECTORY, "MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none"}

from checks import DIM, check, uri  # noqa: E402
from embedding import embed  # noqa: E402
from mem0 import Memory  # noqa: E402
from mem0.embeddings.base import EmbeddingBase  # noqa: E402
from pymilvus import DataType, Function, FunctionType, MilvusClient  # noqa: E402

NAME = "mem0_memories"


class WordCounts(EmbeddingBase):  # type: ignore[misc]
    def embed(self, text: str, memory_action: object = None) -> list[float]:
        return embed(text)


def memories(answer: dict[str, Any]) -> list[str]:
    return sorted(found["memory"] for found in answer["results"])


def new_memory() -> Memory:
    store = {"url": uri(), "token": "", "collection_name": NAME, "embedding_model_dims": DIM}
    made = Memory.from_config(
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
    assert new_memory().get_all(user_id="ann")["results"] == []


memory = new_memory()


@check("`add`, and `get` of the memory right after it")
def _() -> None:
    for user, text in [("ann", "red apple"), ("ann", "green sea"), ("bob", "red car"), ("bob", "old boat")]:
        (added,) = memory.add(text, user_id=user, infer=False)["results"]
        kept[text] = added["id"]
        assert memory.get(added["id"])["memory"] == text


@check("`search` of one user's memories")
def _() -> None:
    assert memory.search("apple", user_id="ann", limit=1)["results"][0]["memory"] == "red apple"
    assert memories(memory.search("apple", user_id="bob")) == ["old boat", "red car"]


@check("`get_all`")
def _() -> None:
    assert memories(memory.get_all(user_id="ann")) == ["green sea", "red apple"]


@check("`update`, and its history")
def _() -> None:
    memory.update(kept["red car"], "blue car")
    assert memory.get(kept["red car"])["memory"] == "blue car"
    assert [entry["event"] for entry in memory.history(kept["red car"])] == ["ADD", "UPDATE"]


@check("`delete`, `delete_all` of one user")
def _() -> None:
    memory.delete(kept["green sea"])
    assert memories(memory.get_all(user_id="ann")) == ["red apple"]
    memory.delete_all(user_id="ann")
    assert memories(memory.get_all(user_id="ann")) == []


@check("a BM25 function, which each collection of mem0 has since 2.0")
def _() -> None:
    client = MilvusClient(uri())
    schema = client.create_schema()
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=512)
    schema.add_field("text", DataType.VARCHAR, max_length=1000, enable_analyzer=True)
    schema.add_field("vectors", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("bm25", FunctionType.BM25, ["text"], ["sparse"]))
    client.create_collection("mem0_since_2", schema=schema)
    client.drop_collection("mem0_since_2")


@check("drop")
def _() -> None:
    client = MilvusClient(uri())
    for name in (NAME, "mem0migrations"):
        client.drop_collection(name)

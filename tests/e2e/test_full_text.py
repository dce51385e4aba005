"""Full-text search through the client: one score for each moment, whatever becomes of the segments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import Server, until
from pymilvus import DataType, Function, FunctionType, MilvusClient

ROOT = Path(__file__).parents[2]
NAME, ROWS, DEADLINE_S = "words", 600, 120.0
WORDS = ("apple", "pear", "plum", "fig", "lime", "quince")
TEXTS = [
    " ".join(word for n, word in enumerate(WORDS) for _ in range(row // 3**n % 3)) for row in range(ROWS)
]

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]


def create(client: MilvusClient) -> None:
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=200, enable_analyzer=True, enable_match=True)
    schema.add_field("terms", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(
        Function(
            name="bm25",
            function_type=FunctionType.BM25,
            input_field_names=["text"],
            output_field_names="terms",
        )
    )
    index = client.prepare_index_params()
    index.add_index("terms", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection(NAME, schema=schema, index_params=index, consistency_level="Strong")


def scores(client: MilvusClient) -> dict[int, float]:
    (hits,) = client.search(NAME, ["pear and quince"], anns_field="terms", limit=ROWS)
    return {hit["id"]: hit["distance"] for hit in hits}


def pears(client: MilvusClient) -> list[int]:
    rows = client.query(NAME, filter="phrase_match(text, 'apple pear')", output_fields=["id"])
    return [row["id"] for row in rows]


def sealed_rows(client: MilvusClient) -> int:
    """The number of rows that are served with an index."""
    segments = client.list_loaded_segments(NAME)
    return sum(one.num_rows for one in segments if one.state_name == "Sealed" and one.index_name)


def test_scores_survive_flushes_indexes_and_compactions(client: MilvusClient) -> None:
    create(client)
    for start in range(0, ROWS, 300):
        rows = [{"id": n, "text": TEXTS[n]} for n in range(start, start + 300)]
        client.insert(NAME, rows)
        client.flush(NAME)
    growing, matching = scores(client), pears(client)
    assert growing.keys() == {n for n, text in enumerate(TEXTS) if "pear" in text or "quince" in text}
    assert matching == [n for n, text in enumerate(TEXTS) if "apple pear" in text]
    until(lambda: sealed_rows(client) == ROWS, DEADLINE_S, "segments served with their indexes")
    assert scores(client) == growing
    assert pears(client) == matching
    client.delete(NAME, filter="id % 3 == 0")
    fewer = scores(client)
    assert fewer.keys() == {n for n in growing if n % 3}
    job = client.compact(NAME)
    until(lambda: client.get_compaction_state(job) == "Completed", DEADLINE_S, "the compaction")
    assert scores(client) == fewer


def test_the_example_program_runs(shared: Server) -> None:
    program = [sys.executable, str(ROOT / "examples" / "full_text.py"), shared.uri]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert "by words and meaning: reading and writing compressed files" in done.stdout
    documents = int(done.stdout.split()[0])
    assert documents > 100

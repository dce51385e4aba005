"""Checks of `client_program`: full-text search, text filters, analyzers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pymilvus
from client_base import DIM, VECTORS, check, new_name, program
from pymilvus import DataType, MilvusClient

BM25 = hasattr(pymilvus, "FunctionType") and hasattr(pymilvus.FunctionType, "BM25")
MINHASH = hasattr(pymilvus, "FunctionType") and hasattr(pymilvus.FunctionType, "MINHASH")
HIGHLIGHTS = hasattr(pymilvus, "LexicalHighlighter")
ANALYZES = hasattr(MilvusClient, "run_analyzer")
WORDS = ("red", "green", "blue", "apple", "car", "sea")
TEXTS = [" ".join(word for k, word in enumerate(WORDS) for _ in range(n // 3**k % 3)) for n in range(200)]
QUERY = "Apple cars blue"
BY_WORDS = {"metric_type": "BM25"}


@contextmanager
def documents(**options: object) -> Iterator[tuple[MilvusClient, str]]:
    """Rows 0, 1, 2 and so on, with a text and a vector each, searched by words and by vectors."""
    client, name = MilvusClient(uri=program.uri), new_name()
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field(
        "text",
        DataType.VARCHAR,
        max_length=99,
        enable_analyzer=True,
        enable_match=True,
        analyzer_params={"type": "english"},
    )
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    kind = pymilvus.FunctionType.BM25
    schema.add_function(
        pymilvus.Function(
            name="bm25", function_type=kind, input_field_names=["text"], output_field_names=["words"]
        )
    )
    index = client.prepare_index_params()
    index.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=options)
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
    try:
        rows = [{"id": n, "text": text, "v": VECTORS[n].tolist()} for n, text in enumerate(TEXTS)]
        client.insert(name, rows)
        yield client, name
    finally:
        client.drop_collection(name)


def expected(k1: float, b: float, without: range = range(0)) -> dict[int, float]:
    """The scores by key: those of `QUERY`, whose words are apple, car and blue."""
    texts = {n: text.split() for n, text in enumerate(TEXTS) if n not in without}
    average = sum(map(len, texts.values())) / len(texts)
    scores: dict[int, float] = Counter()
    for word in ("apple", "car", "blue"):
        having = sum(word in text for text in texts.values())
        rarity = math.log1p((len(texts) - having + 0.5) / (having + 0.5))
        for n, text in texts.items():
            times = text.count(word)
            norm = times + k1 * (1 - b + b * len(text) / average)
            scores[n] += rarity * times * (k1 + 1) / norm
    return {n: score for n, score in scores.items() if score}


def agrees(hits: list[dict[str, float]], scores: dict[int, float]) -> None:
    assert len(hits) == min(20, len(scores))
    assert np.allclose([hit["distance"] for hit in hits], sorted(scores.values(), reverse=True)[: len(hits)])
    assert np.allclose([scores[int(hit["id"])] for hit in hits], [hit["distance"] for hit in hits])


@check("Reads", "full-text search (BM25 function): scores, filters, ranges, deletes", needs=BM25)
def _() -> None:
    with documents(bm25_k1=1.5, bm25_b=0.5) as (client, name):
        (hits,) = client.search(name, [QUERY], anns_field="words", limit=20, search_params=BY_WORDS)
        agrees(hits, expected(1.5, 0.5))
        best = hits[4]["distance"]
        within = BY_WORDS | {"params": {"radius": best}}
        (hits,) = client.search(name, [QUERY], anns_field="words", limit=20, search_params=within)
        assert all(hit["distance"] > best for hit in hits)
        (hits,) = client.search(
            name, [QUERY], anns_field="words", limit=20, filter="id < 50", output_fields=["*"]
        )
        assert all(set(hit["entity"]) == {"id", "text", "v"} and hit["id"] < 50 for hit in hits)
        client.delete(name, filter="id >= 150")
        (hits,) = client.search(name, [QUERY], anns_field="words", limit=20, search_params=BY_WORDS)
        agrees(hits, expected(1.5, 0.5, range(150, 200)))


@check("Reads", "full-text search over texts that may be null", needs=BM25)
def _() -> None:
    client, name = MilvusClient(uri=program.uri), new_name()
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=99, enable_analyzer=True, nullable=True)
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    kind = pymilvus.FunctionType.BM25
    schema.add_function(
        pymilvus.Function(
            name="bm25", function_type=kind, input_field_names=["text"], output_field_names=["words"]
        )
    )
    index = client.prepare_index_params()
    index.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
    try:
        client.insert(name, [{"id": 1, "text": "red car"}, {"id": 2, "text": None}, {"id": 3}])
        (hits,) = client.search(name, ["red"], anns_field="words", limit=5, output_fields=["text"])
        assert [(hit["id"], hit["entity"]["text"]) for hit in hits] == [(1, "red car")]
        assert sorted(row["id"] for row in client.query(name, filter="text is null")) == [2, 3]
    finally:
        client.drop_collection(name)


@check("Reads", "near duplicates of texts (MinHash function)", needs=MINHASH)
def _() -> None:
    client, name = MilvusClient(uri=program.uri), new_name()
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=99)
    schema.add_field("near", DataType.BINARY_VECTOR, dim=1024)
    schema.add_function(
        pymilvus.Function(
            name="minhash",
            function_type=pymilvus.FunctionType.MINHASH,
            input_field_names=["text"],
            output_field_names=["near"],
            params={"num_hashes": 32, "shingle_size": 2},
        )
    )
    index = client.prepare_index_params()
    index.add_index("near", index_type="MINHASH_LSH", metric_type="MHJACCARD", params={"mh_lsh_band": 8})
    client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")
    try:
        texts = ["a red apple on a green table", "a red apple on a green table!", "the sea at night"]
        client.insert(name, [{"id": n, "text": text} for n, text in enumerate(texts)])
        (hits,) = client.search(name, [texts[0]], anns_field="near", limit=3)
        assert [hit["distance"] for hit in hits][:2] == [1.0, 1.0]
        assert (hits[2]["id"], hits[2]["distance"] < 0.5) == (2, True)
        rows = client.query(name, filter="id >= 0", output_fields=["near"])
        assert rows[0]["near"] == rows[1]["near"] != rows[2]["near"]
    finally:
        client.drop_collection(name)


@check("Reads", "highlights of searched words (LexicalHighlighter)", needs=HIGHLIGHTS)
def _() -> None:
    with documents() as (client, name):
        marked = pymilvus.LexicalHighlighter(highlight_search_text=True, pre_tags=["{"], post_tags=["}"])
        marked.with_query("text", "SEA", "TextMatch")
        (hits,) = client.search(
            name, ["apple"], anns_field="words", limit=5, search_params=BY_WORDS, highlighter=marked
        )
        for hit in hits:
            text = TEXTS[hit["id"]]
            tagged = " ".join(f"{{{word}}}" if word in ("apple", "sea") else word for word in text.split())
            assert hit["highlight"]["text"]["fragments"] == [tagged[tagged.index("{") :]]


@check("Reads", "hybrid search over words and vectors", needs=BM25)
def _() -> None:
    with documents() as (client, name):
        asked = [
            pymilvus.AnnSearchRequest([QUERY], "words", BY_WORDS, 20),
            pymilvus.AnnSearchRequest(VECTORS[7:8].tolist(), "v", {"metric_type": "L2"}, 20),
        ]
        (by_words,) = client.search(name, [QUERY], anns_field="words", limit=20, search_params=BY_WORDS)
        (by_vector,) = client.search(name, VECTORS[7:8].tolist(), anns_field="v", limit=20)
        fused: dict[int, float] = Counter()
        for found in (by_words, by_vector):
            for rank, hit in enumerate(found, start=1):
                fused[int(hit["id"])] += 1 / (60 + rank)
        (hits,) = client.hybrid_search(name, asked, pymilvus.RRFRanker(), limit=10)
        assert [hit["id"] for hit in hits] == sorted(fused, key=lambda key: (-fused[key], key))[:10]
        (hits,) = client.hybrid_search(name, asked, pymilvus.WeightedRanker(1.0, 0.0), limit=1)
        assert hits[0]["id"] == by_words[0]["id"]


@check("Collections", "functions of a schema, and how they are described", needs=BM25)
def _() -> None:
    with documents() as (client, name):
        described = client.describe_collection(name)
        (function,) = described["functions"]
        assert (function["input_field_names"], function["output_field_names"]) == (["text"], ["words"])
        marked = [field["name"] for field in described["fields"] if field.get("is_function_output")]
        assert marked == ["words"]


@check("Filters", "text_match and phrase_match", needs=BM25)
def _() -> None:
    with documents() as (client, name):

        def keys(text: str) -> list[int]:
            return [row["id"] for row in client.query(name, filter=text, output_fields=["id"], limit=200)]

        split = [text.split() for text in TEXTS]
        assert keys("text_match(text, 'APPLES car')") == [
            n for n, text in enumerate(split) if "apple" in text or "car" in text
        ]
        assert keys("phrase_match(text, 'red apple')") == [
            n for n, text in enumerate(TEXTS) if "red apple" in text
        ]
        assert keys("not text_match(text, 'red') and id < 9") == [0, 3, 6]
        apples = keys("text_match(text, 'apple')")
        assert keys("text_match_fuzzy(text, 'aple', max_edit_distance=1)") == apples


@check("Collections", "`run_analyzer` by parameters and by field", needs=BM25 and ANALYZES)
def _() -> None:
    with documents() as (client, name):
        analyzed = client.run_analyzer("The foxes ran", analyzer_params={"type": "english"})
        assert list(analyzed.tokens if hasattr(analyzed, "tokens") else analyzed) == ["fox", "ran"]
        rules = {"type": "synonym", "synonyms": ["car, auto", "sea => ocean"]}
        related = client.run_analyzer(
            "sea car", analyzer_params={"tokenizer": "standard", "filter": [rules | {"expand": False}]}
        )
        assert list(related.tokens if hasattr(related, "tokens") else related) == ["ocean", "car"]
        client.run_analyzer(["red apples"], collection_name=name, field_name="text", with_detail=True)

"""Full-text and hybrid search over the descriptions of Debian packages, as an ordinary pymilvus program.

    python examples/full_text.py http://127.0.0.1:19530

Needs `pip install pymilvus numpy` and a running server (`elanus serve`).

The packages are those that are installed on this machine. On a system without dpkg, the documents are the
modules of Python's standard library instead. The vectors are computed from the texts themselves (latent
semantic analysis), so there is no model to download.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from pathlib import Path

import numpy as np
from pymilvus import AnnSearchRequest, DataType, Function, FunctionType, MilvusClient, RRFRanker

NAME = "packages"
DIM = 48
DPKG = Path("/var/lib/dpkg/status")
TEXT_MAX = 4000
WORD = re.compile(r"[a-z0-9]{2,}")


def debian_packages(status: Path) -> list[tuple[str, str]]:
    """The name and the description of each installed package."""
    found = []
    for record in status.read_text(errors="replace").split("\n\n"):
        name = re.search(r"^Package: (.+)$", record, re.MULTILINE)
        text = re.search(r"^Description: (.+(?:\n .*)*)", record, re.MULTILINE)
        if name and text:
            found.append((name[1], re.sub(r"\s+", " ", text[1])[:TEXT_MAX]))
    return found


def python_modules() -> list[tuple[str, str]]:
    """The name and the documentation of each module of the standard library."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(errors="replace")))
        if text:
            found.append((path.stem, re.sub(r"\s+", " ", text)[:TEXT_MAX]))
    return found


class Meaning:
    """Vectors of texts: texts whose words occur in the same texts are close to each other."""

    def __init__(self, texts: list[str]) -> None:
        words = [set(WORD.findall(text.lower())) for text in texts]
        counts: dict[str, int] = {}
        for word in (word for of_text in words for word in of_text):
            counts[word] = counts.get(word, 0) + 1
        common = sorted((word for word, count in counts.items() if count > 1), key=lambda w: (-counts[w], w))
        self._places = {word: place for place, word in enumerate(common[:3000])}
        self._rarity = np.log(len(texts) / np.array([counts[word] for word in self._places]))
        weights = self._weights(texts)
        size, vectors = np.linalg.eigh(weights @ weights.T)  # the singular values of the weights, squared
        self._axes = (vectors[:, -DIM:] / np.sqrt(np.maximum(size[-DIM:], 1e-9))).T @ weights

    def of(self, texts: list[str]) -> list[list[float]]:
        return (self._weights(texts) @ self._axes.T).astype(np.float32).tolist()  # type: ignore[no-any-return]

    def _weights(self, texts: list[str]) -> np.ndarray:
        weights = np.zeros((len(texts), len(self._places)), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in set(WORD.findall(text.lower())) & self._places.keys():
                weights[row, self._places[word]] = self._rarity[self._places[word]]
        return weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-9)


def create(client: MilvusClient) -> None:
    schema = client.create_schema()
    schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=200)
    schema.add_field(
        "text",
        DataType.VARCHAR,
        max_length=4 * TEXT_MAX,
        enable_analyzer=True,
        enable_match=True,
        analyzer_params={"type": "english"},
    )
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_field("meaning", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_function(
        Function(
            name="bm25",
            function_type=FunctionType.BM25,
            input_field_names=["text"],
            output_field_names=["words"],
        )
    )
    index = client.prepare_index_params()
    index.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    index.add_index("meaning", index_type="HNSW", metric_type="COSINE")
    if client.has_collection(NAME):
        client.drop_collection(NAME)
    client.create_collection(NAME, schema=schema, index_params=index, consistency_level="Strong")


def show(title: str, hits: list[dict[str, object]]) -> None:
    print(f"\n{title}")
    for hit in hits:
        text = str(hit["entity"]["text"])  # type: ignore[index]
        print(f"  {hit['distance']:8.4f}  {hit['name']:<28} {text[:60]}")


def main() -> None:
    client = MilvusClient(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:19530")
    documents = debian_packages(DPKG) if DPKG.exists() else python_modules()
    names, texts = [name for name, _ in documents], [text for _, text in documents]
    meaning = Meaning(texts)
    create(client)
    rows = [
        {"name": name, "text": text, "meaning": vector}
        for name, text, vector in zip(names, texts, meaning.of(texts), strict=True)
    ]
    for start in range(0, len(rows), 500):
        client.insert(NAME, rows[start : start + 500])
    print(f"{len(rows)} documents")

    question = "reading and writing compressed files"
    by_words = AnnSearchRequest([question], "words", {"metric_type": "BM25"}, 20)
    by_meaning = AnnSearchRequest(meaning.of([question]), "meaning", {"metric_type": "COSINE"}, 20)
    output = ["text"]
    (hits,) = client.search(NAME, [question], anns_field="words", limit=5, output_fields=output)
    show(f"by words: {question}", hits)
    (hits,) = client.hybrid_search(NAME, [by_words, by_meaning], RRFRanker(), limit=5, output_fields=output)
    show(f"by words and meaning: {question}", hits)
    matches = "text_match(text, 'compression archive', minimum_should_match=2)"
    (hits,) = client.search(
        NAME, ["library"], anns_field="words", limit=5, filter=matches, output_fields=output
    )
    show(f"by words, where {matches}", hits)
    client.drop_collection(NAME)


if __name__ == "__main__":
    main()

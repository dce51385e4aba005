"""Products with several vectors: a search by picture and by description at once, within a price.

    python examples/products.py http://127.0.0.1:19530

Needs `pip install pymilvus numpy` and a running server (`elanus serve`).

Each product has a vector of its picture (float16), one of its description (sparse: words and their weights)
and a binary one of its features. The pictures are handwritten digits from `examples/data`: a shop that sells
numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from pymilvus import AnnSearchRequest, DataType, MilvusClient, WeightedRanker

NAME = "products"
COUNT = 2000
WORDS = ("slanted", "upright", "bold", "thin", "cheap", "handmade")
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def create(client: MilvusClient, dim: int) -> None:
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("name", DataType.VARCHAR, max_length=20)
    schema.add_field("price", DataType.DOUBLE)
    schema.add_field("tags", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=8, max_length=20)
    schema.add_field("picture", DataType.FLOAT16_VECTOR, dim=dim)
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_field("features", DataType.BINARY_VECTOR, dim=64)
    index = client.prepare_index_params()
    index.add_index(
        "picture", index_type="HNSW", metric_type="COSINE", params={"M": 16, "efConstruction": 100}
    )
    index.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    index.add_index("features", index_type="BIN_FLAT", metric_type="HAMMING")
    index.add_index("tags", index_type="INVERTED")
    if client.has_collection(NAME):
        client.drop_collection(NAME)
    client.create_collection(NAME, schema=schema, index_params=index, consistency_level="Strong")


def products(pictures: np.ndarray, digits: np.ndarray) -> list[dict[str, object]]:
    """A row for each picture. Its tags and price follow from the ink on it."""
    ink = pictures.mean(axis=1)
    dark = ink > np.median(ink)
    coarse = pictures.reshape(-1, 28, 28)[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3).mean(axis=(2, 4))
    features = np.packbits(coarse.reshape(-1, 64) > coarse.mean(axis=(1, 2))[:, None], axis=1)
    rows: list[dict[str, object]] = []
    for i, (picture, digit) in enumerate(zip(pictures, digits, strict=True)):
        tags = [WORDS[2 if dark[i] else 3], WORDS[i % 2], *([WORDS[4]] if ink[i] < 20 else [])]
        words = {WORDS.index(tag): 1.0 for tag in tags} | {100 + int(digit): 2.0}
        rows.append(
            {
                "id": i,
                "name": NAMES[digit],
                "price": round(float(ink[i]) / 3, 2),
                "tags": tags,
                "picture": picture.astype(np.float16),
                "words": words,
                "features": features[i].tobytes(),
            }
        )
    return rows


def show(title: str, hits: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    for hit in hits:
        found = hit["entity"]
        tags = ", ".join(found["tags"])
        print(f"  {hit['distance']:8.3f}  {found['name']:<6} {found['price']:6.2f}  {tags}")


def main(uri: str) -> None:
    data = np.load(Path(__file__).parent / "data" / "mnist-small.npz")
    pictures, digits = data["train"][: COUNT + 1].astype(np.float32), data["train_label"][: COUNT + 1]
    client = MilvusClient(uri)
    create(client, pictures.shape[1])
    rows = products(pictures, digits)
    wanted = rows.pop()
    for start in range(0, len(rows), 500):
        client.insert(NAME, rows[start : start + 500])
    print(f"{len(rows)} products; wanted: a {wanted['name']}, {', '.join(wanted['tags'])}")  # type: ignore[arg-type]

    output = ["name", "price", "tags"]
    chosen = "price < 12 and array_contains(tags, 'thin')"
    by_picture = AnnSearchRequest([wanted["picture"]], "picture", {"metric_type": "COSINE"}, 100, expr=chosen)
    by_words = AnnSearchRequest([wanted["words"]], "words", {"metric_type": "IP"}, 100, expr=chosen)
    (hits,) = client.hybrid_search(
        NAME, [by_picture, by_words], WeightedRanker(0.7, 0.3), limit=5, output_fields=output
    )
    show(f"by picture and words, where {chosen}", hits)
    (hits,) = client.search(NAME, [wanted["features"]], anns_field="features", limit=5, output_fields=output)
    show("by features", hits)
    (hits,) = client.search(
        NAME, [wanted["picture"]], anns_field="picture", limit=5, output_fields=output, group_by_field="name"
    )
    show("by picture, the best product of each name", hits)
    client.drop_collection(NAME)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:19530")

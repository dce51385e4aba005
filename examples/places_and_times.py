"""Concerts like this one, near here, in the next days: a search with geographic and time filters.

    python examples/places_and_times.py http://127.0.0.1:19530

Needs `pip install pymilvus` and a running server (`elanus serve`).
"""

from __future__ import annotations

import sys

from pymilvus import DataType, MilvusClient

NAME = "concerts"
CONCERTS = [
    (1, "organ recital", "2025-06-01T20:00:00+02:00", "POINT (13.4010 52.5191)"),
    (2, "jazz trio", "2025-06-02T21:30:00+02:00", "POINT (13.4050 52.5200)"),
    (3, "big band", "2025-06-02 19:00:00", "POINT (13.4100 52.5230)"),
    (4, "jazz choir", "2025-07-09T19:00:00+02:00", "POINT (13.4060 52.5210)"),
    (5, "jazz brunch", "2025-06-02T11:00:00+02:00", "POINT (9.9937 53.5511)"),
    (6, "to be announced", None, None),
]
STYLES = {1: [0.0, 1.0], 2: [0.9, 0.1], 3: [0.7, 0.3], 4: [1.0, 0.0], 5: [0.9, 0.2]}
"""The style of each. The last one has no vector yet: it is found by filters, and by no search."""
PARK = "POLYGON ((13.39 52.51, 13.42 52.51, 13.42 52.53, 13.39 52.53, 13.39 52.51))"


def main(uri: str) -> None:
    client = MilvusClient(uri=uri)
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("title", DataType.VARCHAR, max_length=100)
    schema.add_field("starts", DataType.TIMESTAMPTZ, nullable=True)
    schema.add_field("place", DataType.GEOMETRY, nullable=True)
    schema.add_field("style", DataType.FLOAT_VECTOR, dim=2, nullable=True)
    index = client.prepare_index_params("style", index_type="AUTOINDEX", metric_type="COSINE")
    if client.has_collection(NAME):
        client.drop_collection(NAME)
    client.create_collection(
        NAME,
        schema=schema,
        index_params=index,
        properties={"timezone": "Europe/Berlin"},  # that of times without an offset, and of the answers
        consistency_level="Strong",
    )
    names = ("id", "title", "starts", "place")
    client.insert(NAME, [dict(zip(names, c, strict=True)) | {"style": STYLES.get(c[0])} for c in CONCERTS])

    print("like jazz, within 1 km, in the first week of June:")
    (hits,) = client.search(
        NAME,
        [[1.0, 0.0]],
        limit=3,
        filter="st_dwithin(place, 'POINT (13.4050 52.5200)', 1000)"
        " and ISO '2025-06-01T00:00:00' <= starts < ISO '2025-06-08T00:00:00'",
        output_fields=["title", "starts"],
    )
    for hit in hits:
        print(f"  {hit['entity']['starts']}  {hit['entity']['title']}")

    print("in the park, doors (an hour before) open from 20:00 in London on June 2 or later:")
    for row in client.query(
        NAME,
        f"st_within(place, '{PARK}') and starts - INTERVAL 'PT1H' >= ISO '2025-06-02T20:00:00+01:00'",
        output_fields=["title", "starts"],
        timezone="Europe/London",
    ):
        print(f"  {row['starts']}  {row['title']}")

    print("without a vector:")
    for row in client.query(NAME, "style is null", output_fields=["title", "starts", "style"]):
        print(f"  {row['title']}: {row['starts']}, {row['style']}")
    client.drop_collection(NAME)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:19530")

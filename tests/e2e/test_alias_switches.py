"""An alias switches between two collections of different schemas while clients insert through it.

The usual way to put a new collection in the place of an old one. Every acknowledged row must be in the
collection that has its columns, whenever the switch came, and flush and reads of both must go on.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import count

import pytest
from harness import Server
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

ALIAS = "shop"
COLUMN = {"blue": ("price", DataType.DOUBLE, 1.5), "green": ("colour", DataType.VARCHAR, "red")}
ROWS = 1000
WRITERS = 3
LOAD_S = 12.0


def create(client: MilvusClient, name: str) -> None:
    schema = client.create_schema(enable_dynamic_field=True)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=4)
    column, kind, _ = COLUMN[name]
    schema.add_field(column, kind, max_length=16)
    index = client.prepare_index_params()
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection(name, schema=schema, index_params=index)


class Writer(threading.Thread):
    """Inserts rows of the one collection and rows of the other by turns; keeps what was acknowledged."""

    def __init__(self, server: Server, keys: count[int], until_s: float) -> None:
        super().__init__()
        self._client = server.client()
        self._keys = keys
        self._until_s = until_s
        self.acknowledged: dict[str, list[int]] = defaultdict(list)
        self.refused = 0
        self.unexpected: list[BaseException] = []

    def run(self) -> None:
        try:
            while time.monotonic() < self._until_s:
                for name in COLUMN:
                    self._insert(name)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.unexpected.append(error)
        finally:
            self._client.close()

    def _insert(self, name: str) -> None:
        column, _, value = COLUMN[name]
        keys = [next(self._keys) for _ in range(ROWS)]
        note = "x" * 200  # in the dynamic field, whose decoding takes the server a while
        rows = [{"id": key, "v": [key, 0.0, 0.0, 1.0], column: value, "note": note} for key in keys]
        try:
            self._client.insert(ALIAS, rows)
        except MilvusException:
            self.refused += 1  # the alias means the other collection
        else:
            self.acknowledged[name] += keys


def test_rows_are_where_their_columns_are_though_the_alias_switches(shared: Server) -> None:
    client = shared.client()
    for name in COLUMN:
        create(client, name)
    client.create_alias("blue", ALIAS)
    until_s = time.monotonic() + LOAD_S
    keys = count()
    writers = [Writer(shared, keys, until_s) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    switches = 0
    while time.monotonic() < until_s:
        client.alter_alias(("green", "blue")[switches % 2], ALIAS)
        switches += 1
        time.sleep(0.02)
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    assert [error for writer in writers for error in writer.unexpected] == []
    assert switches > 20
    for name in COLUMN:
        written = {key for writer in writers for key in writer.acknowledged[name]}
        assert written, f"no insert found the alias at {name} in {switches} switches"
        client.flush(name)
        found = client.query(name, filter="id >= 0", output_fields=["id"], consistency_level="Strong")
        # A dynamic field takes any column: of rows that were refused nothing may have been written.
        assert {row["id"] for row in found} == written
    status = shared.status()
    assert sum(channel["quarantined"] for channel in status["channels"]) == 0
    client.drop_alias(ALIAS)
    for name in COLUMN:
        client.drop_collection(name)
    client.close()

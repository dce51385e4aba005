"""One client of the history test, as a process of its own: registers written and read, and what came of it.

Usage: ``history_client.py URI COLLECTION NUMBER KEYS``. It goes on until its standard input ends, and prints
an operation a line as JSON: key, whether it read, the value (null: none), when it began and ended in
nanoseconds of the machine's monotonic clock, which all processes share (``ended`` null: no answer came).
Values are unique: the client's number, and a count.

Reads are Strong, and a query as often as a search for the key's own vector. No request is repeated.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
import time

from pymilvus import MilvusClient, MilvusException

PAUSE_AFTER_ERROR_S = 0.05
VALUES_PER_CLIENT = 1_000_000
DOUBLED = -2
"""The value of a read that found a key twice: no client writes it, so it fits no order."""
ONCE = {"retry_times": 0}
"""With a timeout, pymilvus repeats a request whose connection broke until the timeout is over."""


class Registers:
    def __init__(self, client: MilvusClient, collection: str, number: int, keys: int) -> None:
        self._client = client
        self._collection = collection
        self._keys = keys
        self._chance = random.Random(number)
        self._value = number * VALUES_PER_CLIENT

    def step(self) -> bool:
        """One operation, printed. False when it had no answer."""
        key = self._chance.randrange(self._keys)
        chosen = self._chance.random()
        if chosen < 0.5:
            return self._read(key, by_search=chosen < 0.25)
        return self._write(key, None if chosen > 0.9 else self._next_value())

    def _next_value(self) -> int:
        self._value += 1
        return self._value

    def _write(self, key: int, value: int | None) -> bool:
        began = time.monotonic_ns()
        try:
            if value is None:
                self._client.delete(self._collection, ids=[key], **ONCE)
            else:
                row = {"key": key, "value": value, "v": vector_of(key)}
                self._client.upsert(self._collection, [row], **ONCE)
        except MilvusException:
            record(key, reads=False, value=value, began=began, ended=None)
            return False
        record(key, reads=False, value=value, began=began, ended=time.monotonic_ns())
        return True

    def _read(self, key: int, *, by_search: bool) -> bool:
        began = time.monotonic_ns()
        try:
            values = self._search(key) if by_search else self._query(key)
        except MilvusException:
            return False
        ended = time.monotonic_ns()
        value = values[0] if values else None
        record(key, reads=True, value=value if len(values) < 2 else DOUBLED, began=began, ended=ended)
        return True

    def _query(self, key: int) -> list[int]:
        rows = self._client.query(
            self._collection, ids=[key], output_fields=["value"], consistency_level="Strong", **ONCE
        )
        return [row["value"] for row in rows]

    def _search(self, key: int) -> list[int]:
        hits = self._client.search(
            self._collection,
            data=[vector_of(key)],
            limit=5,
            search_params={"params": {"radius": 0.5}},
            output_fields=["value"],
            consistency_level="Strong",
            **ONCE,
        )
        return [hit["entity"]["value"] for hit in hits[0]]


def vector_of(key: int) -> list[float]:
    """Keys lie one apart."""
    return [float(key), 0.0]


def record(key: int, *, reads: bool, value: int | None, began: int, ended: int | None) -> None:
    sys.stdout.write(json.dumps([key, reads, value, began, ended]) + "\n")
    sys.stdout.flush()


def main() -> None:
    uri, collection, number, keys = sys.argv[1:]
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    registers = Registers(MilvusClient(uri), collection, int(number), int(keys))
    while not stopped.is_set():
        if not registers.step():
            time.sleep(PAUSE_AFTER_ERROR_S)


if __name__ == "__main__":
    main()

"""Acknowledged load, and a model of what it must leave: the oracle of the tests that kill processes.

Each writer owns a range of keys, so it knows what every key holds. It inserts, upserts, deletes by key
and by expression, one request after the other, without letting the client repeat any. An acknowledged
request is certain. A request that ended in an error is *doubtful*: each of its rows is as it was
before, or as the request wanted it; all alike when the collection has one shard, because then the
request is one step in one log.

The outcome of a doubtful request is looked at once, and may not change from then on.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import grpc
import numpy as np
from harness import until
from pymilvus import DataType, MilvusClient
from pymilvus.client.types import Status
from pymilvus.exceptions import MilvusException

DIM = 8
KEYS_PER_WRITER = 1_000_000
BATCH_ROWS_MAX = 60
PATIENCE_S = 20.0
PROGRESS_DEADLINE_S = 60.0
LOADED_DEADLINE_S = 60.0
FLUSHED_DEADLINE_S = 120.0

INDEXES = {"HNSW": {"M": 8, "efConstruction": 40}, "FLAT": {}}

Version = int | None
"""Which write a key's row is of; None: there is no such row."""


def create(client: MilvusClient, name: str, *, shards: int, index: str = "HNSW") -> None:
    """A collection for this load, indexed and loaded."""
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("version", DataType.INT64)
    schema.add_field("text", DataType.VARCHAR, max_length=64)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    params = client.prepare_index_params()
    params.add_index("v", index_type=index, metric_type="L2", params=INDEXES[index])
    client.create_collection(name, schema=schema, index_params=params, num_shards=shards)


def row_of(key: int, version: int) -> dict[str, object]:
    """The one content that this version of the key has."""
    return {"key": key, "version": version, "text": text_of(key, version), "v": vector_of(key, version)}


def text_of(key: int, version: int) -> str:
    return f"{key} as of {version}"


def vector_of(key: int, version: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng((key, version)).random(DIM, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A request that was not acknowledged: what each key may hold now, (before, wanted)."""

    what: str
    outcomes: Mapping[int, tuple[Version, Version]]


@dataclass(slots=True)
class Book:
    """The writers' knowledge of one collection. A key of a doubtful request is not in ``certain``."""

    shards: int
    certain: dict[int, int] = field(default_factory=dict)
    doubtful: list[Doubtful] = field(default_factory=list)

    def settle(self, found: Mapping[int, int]) -> None:
        """Compare what is there with what must and may be; from now on all of it is certain."""
        expected = dict(self.certain)
        for request in self.doubtful:
            sides = {_side(key, found.get(key), *outcome) for key, outcome in request.outcomes.items()}
            assert len(sides - {"same"}) <= 1 or self.shards > 1, (
                f"half of a request is there: {request.what}"
            )
            expected |= {key: found[key] for key in request.outcomes if key in found}
        missing = sorted(expected.keys() - found.keys())
        unexpected = sorted(found.keys() - expected.keys())
        assert not missing, f"{len(missing)} acknowledged rows are lost, such as {missing[:5]}"
        assert not unexpected, f"{len(unexpected)} rows came back or from nowhere, such as {unexpected[:5]}"
        stale = {key: (found[key], version) for key, version in expected.items() if found[key] != version}
        assert not stale, (
            f"{len(stale)} rows have an old content (found, expected): {sorted(stale.items())[:5]}"
        )
        self.certain, self.doubtful = expected, []


def _side(key: int, found: Version, before: Version, wanted: Version) -> str:
    assert found in (before, wanted), f"key {key} is at {found}, neither {before} nor {wanted}"
    if before == wanted:
        return "same"
    return "before" if found == before else "wanted"


class Writer:
    """One thread's load on one collection. ``acknowledged`` counts its requests that were.

    ``options``: how every request is sent: once. With a timeout, pymilvus repeats a request whose connection
    broke until the timeout is over, whatever ``retry_times`` says: then an insert may be stored twice.
    """

    options: Mapping[str, object] = {"retry_times": 0}

    def __init__(self, number: int, seed: int, collection: str, shards: int) -> None:
        self.number = number
        self.collection = collection
        self.book = Book(shards)
        self.acknowledged = 0
        self.errors: list[MilvusException] = []
        self._random = random.Random(f"{seed}/{number}")
        self._next_key = number * KEYS_PER_WRITER
        self._first_key = self._next_key
        self._version = 0

    def work(self, client: MilvusClient, stop: threading.Event, *, until_error: bool) -> None:
        """Request after request until stopped, or until the first error."""
        while not stop.is_set():
            ended_well = self._random.choices(
                (self._insert, self._upsert, self._delete_keys, self._delete_range), (6, 3, 2, 1)
            )[0](client)
            if not ended_well and until_error:
                return

    def _insert(self, client: MilvusClient) -> bool:
        self._version += 1
        keys = range(self._next_key, self._next_key + self._random.randint(1, BATCH_ROWS_MAX))
        self._next_key = keys.stop
        return self._write(client.insert, "insert", keys)

    def _upsert(self, client: MilvusClient) -> bool:
        self._version += 1
        new = range(self._next_key, self._next_key + self._random.randint(0, 5))
        self._next_key = new.stop
        return self._write(client.upsert, "upsert", [*self._some_keys(), *new])

    def _write(self, request: Callable[..., object], what: str, keys: Iterable[int]) -> bool:
        wanted: dict[int, Version] = dict.fromkeys(keys, self._version)
        if not wanted:
            return True
        rows = [row_of(key, self._version) for key in wanted]
        return self._request(what, wanted, lambda: request(self.collection, rows, **self.options))

    def _delete_keys(self, client: MilvusClient) -> bool:
        keys = self._some_keys()
        if not keys:
            return True
        return self._request(
            "delete by key",
            dict.fromkeys(keys),
            lambda: client.delete(self.collection, ids=keys, **self.options),
        )

    def _delete_range(self, client: MilvusClient) -> bool:
        first = self._first_key + self._random.randrange(max(1, self._next_key - self._first_key))
        last = first + BATCH_ROWS_MAX
        keys = [key for key in range(first, last) if key in self.book.certain]
        if not keys or any(first <= key < last for request in self.book.doubtful for key in request.outcomes):
            return True
        expression = f"{first} <= key < {last} and version > 0"
        return self._request(
            "delete by expression",
            dict.fromkeys(keys),
            lambda: client.delete(self.collection, filter=expression, **self.options),
        )

    def _request(self, what: str, wanted: dict[int, Version], send: Callable[[], object]) -> bool:
        book = self.book
        try:
            send()
        except MilvusException as error:
            self.errors.append(error)
            before = {key: book.certain.pop(key, None) for key in wanted}
            label = f"{what} of {len(wanted)} rows, version {self._version}"
            book.doubtful.append(Doubtful(label, {k: (before[k], v) for k, v in wanted.items()}))
            return False
        for key, version in wanted.items():
            if version is None:
                book.certain.pop(key, None)
            else:
                book.certain[key] = version
        self.acknowledged += 1
        return True

    def _some_keys(self) -> list[int]:
        known = sorted(self.book.certain)
        return self._random.sample(known, min(len(known), self._random.randint(1, BATCH_ROWS_MAX)))


class Flusher:
    """Flushes the collections one after the other until stopped, or until the server is gone."""

    def __init__(self, client: MilvusClient, collections: Iterable[str], pause: random.Random) -> None:
        self.flushes = 0
        self._client = client
        self._collections = tuple(collections)
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(FLUSHED_DEADLINE_S)
        assert not self._thread.is_alive(), "a flush did not end"

    def _run(self) -> None:
        while not self._stop.wait(self._pause.uniform(0.0, 1.5)):
            for name in self._collections:
                try:
                    self._client.flush(name, timeout=2, retry_times=0)
                    self.flushes += 1
                except (MilvusException, grpc.RpcError):  # pymilvus wraps not every deadline
                    continue  # killed, or not flushed in time: both are part of the test


class Load:
    """Several writers at once on several collections. ``make``: makes a writer."""

    def __init__(
        self,
        seed: int,
        collections: Mapping[str, int],
        writers_each: int = 2,
        make: Callable[[int, int, str, int], Writer] = Writer,
    ) -> None:
        names = [name for name in collections for _ in range(writers_each)]
        self.writers = [make(n, seed, name, collections[name]) for n, name in enumerate(names)]
        self.collections = collections
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()

    @property
    def acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    def begin(self, client: MilvusClient, *, until_error: bool) -> None:
        self._stop.clear()
        self._threads = [
            threading.Thread(target=w.work, args=(client, self._stop), kwargs={"until_error": until_error})
            for w in self.writers
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, requests: int) -> None:
        """Until that many more requests have been acknowledged."""
        goal = self.acknowledged + requests
        until(
            lambda: self.acknowledged >= goal, PROGRESS_DEADLINE_S, f"{requests} more acknowledged requests"
        )

    def end(self) -> None:
        """Stop the writers. Raises when one of them hangs."""
        self._stop.set()
        deadline = time.monotonic() + 3 * PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), "a request did not end"

    def errors(self) -> list[MilvusException]:
        """The errors that requests ended in since this was asked last."""
        found = [error for writer in self.writers for error in writer.errors]
        for writer in self.writers:
            writer.errors.clear()
        return found

    def check(self, client: MilvusClient) -> None:
        """Every acknowledged row is there exactly once, every acknowledged delete holds."""
        for name in self.collections:
            found = rows_in(client, name)
            for writer in self.writers:
                if writer.collection == name:
                    own = {k: v for k, v in found.items() if k // KEYS_PER_WRITER == writer.number}
                    writer.book.settle(own)
            check_search(client, name, found)


def rows_in(client: MilvusClient, name: str) -> dict[int, int]:
    """Key → version of all rows, after checking that none is there twice and that each is whole."""
    count, rows = settled_read(client, name)
    doubled = [key for key, times in Counter(row["key"] for row in rows).items() if times > 1]
    assert not doubled, f"{name}: {len(doubled)} keys were returned twice, such as {doubled[:5]}"
    # a query skips a second row of a key, count(*) does not
    assert count == len(rows), f"{name}: count(*) is {count}, {len(rows)} rows were returned"
    for row in rows:
        assert row["text"] == text_of(row["key"], row["version"])
        assert np.array_equal(np.asarray(row["v"], np.float32), vector_of(row["key"], row["version"]))
    return {row["key"]: row["version"] for row in rows}


def settled_read(client: MilvusClient, name: str) -> tuple[int, list[dict[str, object]]]:
    """count(*) and all rows. Until the collection is loaded again the answer is an error, never a part."""

    def read() -> tuple[int, list[dict[str, object]]] | None:
        try:
            counted = client.query(name, output_fields=["count(*)"], consistency_level="Strong")
            rows = client.query(name, filter="key >= 0", output_fields=["*"], consistency_level="Strong")
        except MilvusException as error:
            # or the client's attempt to connect again, which began while the server was down, has just failed
            if "loaded" in error.message or error.code == Status.CONNECT_FAILED:
                return None
            raise
        return int(counted[0]["count(*)"]), list(rows)

    return until(read, LOADED_DEADLINE_S, f"{name} is loaded again")


def check_search(client: MilvusClient, name: str, rows: Mapping[int, int], queries: int = 20) -> None:
    """A row's own vector finds the row."""
    keys = sorted(rows)[:: max(1, len(rows) // queries)]
    if not keys:
        return
    vectors = [vector_of(key, rows[key]) for key in keys]
    params = {"params": {"ef": 200}}
    hits = client.search(name, vectors, limit=1, search_params=params, consistency_level="Strong")
    assert [hit[0]["key"] for hit in hits] == keys

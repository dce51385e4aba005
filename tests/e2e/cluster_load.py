"""Load on a cluster while parts of it are killed: what it was like, and what it must leave.

Each proxy has a writer of its own (`crash_load.Writer`: it knows what every key of its range holds) and a
reader. All use clients that repeat nothing by themselves. As a careful application would, they repeat a
request that failed with an error that says so, after a pause, until it succeeds: an insert whose outcome is
not known is repeated as an upsert. Failures are counted; a failure that no repetition can fix
is *unexpected*.

Readers ask for rows that are written once and never touched (*anchors*): every answer, at whatever moment,
has to be all of them, exactly once. Writers read their own latest write back through the other proxies.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import grpc
from crash_load import (
    BATCH_ROWS_MAX,
    KEYS_PER_WRITER,
    Doubtful,
    Version,
    Writer,
    check_search,
    create,
    row_of,
    rows_in,
    vector_of,
)
from harness import until
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

NAME = "rows"
SHARDS = 2
ANCHORS = 200
ANCHORS_FROM = 900 * KEYS_PER_WRITER
PAUSE_S = 0.02
RETRY_PAUSE_S = 0.1
PATIENCE_S = 90.0
KEYS_MAX = 3000
"""Keys a writer holds about; with more it deletes more."""
END_DEADLINE_S = 2 * PATIENCE_S
FLUSH_EVERY_S = 2.0
CROSS_READ_EVERY = 5
"""A writer looks at each such request of its own through the other proxies."""
CROSS_READ_TIMEOUT_S = 2.0
AVOIDED_S = 10.0
"""A proxy that did not answer such a look is spared others: writers are not to wait for it."""
RETRYABLE_CODES = {1, 2, 3, 4}
"""Not ready; unavailable; out of memory; queue full. The client drops what the server says of it."""
READ, WRITE = "read", "write"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one request. ``error``: empty when it succeeded. Times are of `time.monotonic`."""

    kind: str
    proxy: str
    began_s: float
    ended_s: float
    error: str


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time. ``gaps_s``: by kind and proxy, the longest time without a success."""

    gaps_s: Mapping[tuple[str, str], float]
    failed: Mapping[str, int]
    succeeded: Mapping[str, int]
    errors: tuple[str, ...]

    def gap_s(self, kind: str, *proxies: str) -> float:
        """The longest of these proxies, or of all."""
        return max(s for (k, p), s in self.gaps_s.items() if k == kind and (not proxies or p in proxies))


def is_retryable(error: MilvusException) -> bool:
    """Whether the error asks an application to try again."""
    return isinstance(error.code, grpc.StatusCode) or error.code in RETRYABLE_CODES


class Wrong(Exception):
    """An answer that cannot be."""


class ClusterLoad:
    """``uris``: of the proxies, by name. Creates the collection, indexed and loaded.

    One thread controls it: `begin`, `mark` and `span`, `end`, `check`; then it may begin again.
    """

    def __init__(self, uris: Mapping[str, str], seed: int) -> None:
        self._uris = uris
        self._outcomes: list[Outcome] = []
        self.unexpected: list[str] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._avoid_until_s = dict.fromkeys(uris, 0.0)
        self._clients = {name: MilvusClient(uri) for name, uri in uris.items()}
        first = next(iter(self._clients.values()))
        create(first, NAME, shards=SHARDS)
        first.insert(NAME, [row_of(key, 0) for key in anchors()])
        names = list(uris)
        self.writers = [
            PatientWriter(number, seed, self._send(name), [self._reading(n) for n in names if n != name])
            for number, name in enumerate(names)
        ]
        self._seed = seed

    def begin(self) -> None:
        self._stop.clear()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (
                *(lambda w=w, c=c: w.work(c, self._stop, until_error=False) for w, c in self._paired()),
                *(lambda n=n: self._read(n) for n in self._clients),
                self._flush,
            )
        ]
        for thread in self._threads:
            thread.start()

    def mark(self) -> float:
        return time.monotonic()

    def wait_for(self, requests: int, since_s: float, *proxies: str) -> None:
        """Until so many requests that began later have succeeded, of each kind at each of the proxies."""
        wanted = [(kind, name) for kind in (READ, WRITE) for name in proxies or self._clients]

        def there() -> bool:
            done = [(o.kind, o.proxy) for o in tuple(self._outcomes) if not o.error and o.began_s >= since_s]
            return all(done.count(each) >= requests for each in wanted) or bool(self.unexpected)

        until(there, END_DEADLINE_S, f"{requests} requests succeed at each proxy", poll_s=0.1)
        self.expect_no_wrong()

    def span(self, since_s: float) -> Span:
        """From ``since_s`` to now."""
        now_s = time.monotonic()
        seen = [o for o in tuple(self._outcomes) if o.ended_s >= since_s]
        gaps = {}
        for kind, name in itertools.product((READ, WRITE), self._clients):
            done = sorted(o.ended_s for o in seen if not o.error and (o.kind, o.proxy) == (kind, name))
            times = [since_s, *done, now_s]
            gaps[kind, name] = max(b - a for a, b in itertools.pairwise(times))
        failed = [o for o in seen if o.error]
        return Span(
            gaps,
            {kind: sum(o.kind == kind for o in failed) for kind in (READ, WRITE)},
            {kind: sum(o.kind == kind and not o.error for o in seen) for kind in (READ, WRITE)},
            tuple(dict.fromkeys(f"{o.kind} at {o.proxy}: {o.error}" for o in failed)),
        )

    def serving(self) -> set[int]:
        """The ids of the query nodes that hold segments of the collection."""
        client = next(iter(self._clients.values()))
        try:
            return {n for s in client._get_connection().get_query_segment_info(NAME) for n in s.nodeIds}
        except (MilvusException, grpc.RpcError):
            return set()

    def end(self) -> None:
        """Stop. Raises when a request hangs."""
        self._stop.set()
        deadline_s = time.monotonic() + END_DEADLINE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
            assert not thread.is_alive(), "a request did not end"
        self._outcomes.clear()

    def expect_no_wrong(self) -> None:
        assert not self.unexpected, self.unexpected[:5]

    def check(self) -> None:
        """No acknowledged write is lost, none doubled, nothing deleted came back, counts are exact: asked
        at every proxy, of a load that stands still."""
        self.expect_no_wrong()
        for client in self._clients.values():
            found = until(lambda c=client: self._rows(c), PATIENCE_S, "all rows can be read", poll_s=0.2)
            for writer in self.writers:
                own = {k: v for k, v in found.items() if k // KEYS_PER_WRITER == writer.number}
                writer.book.settle(own)
            assert [k for k in found if k >= ANCHORS_FROM] == list(anchors())
            check_search(client, NAME, found)

    def close(self) -> None:
        self._stop.set()
        for client in self._clients.values():
            client.close()

    # what its threads do

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread that died unseen would pass for one that is content
            self.unexpected.append(f"{type(error).__name__}: {error}")

    def _paired(self) -> Iterable[tuple[PatientWriter, MilvusClient]]:
        return zip(self.writers, self._clients.values(), strict=True)

    def _rows(self, client: MilvusClient) -> dict[int, int] | None:
        try:
            return rows_in(client, NAME)
        except MilvusException as error:
            if is_retryable(error):
                return None
            raise

    def _send(self, proxy: str) -> Callable[[Callable[[], object]], bool]:
        return lambda request: self._attempt(WRITE, proxy, request)

    def _reading(self, proxy: str) -> Callable[[Sequence[int]], dict[int, int] | None]:
        """A proxy's present answer about some keys; None when it gives none."""

        def read(keys: Sequence[int]) -> dict[int, int] | None:
            found: dict[int, int] = {}
            if time.monotonic() < self._avoid_until_s[proxy]:
                return None

            def ask() -> None:
                rows = self._clients[proxy].query(
                    NAME,
                    ids=list(keys),
                    output_fields=["version"],
                    consistency_level="Strong",
                    timeout=CROSS_READ_TIMEOUT_S,
                )
                found.update({row["key"]: row["version"] for row in rows})

            if self._attempt(READ, proxy, ask):
                return found
            self._avoid_until_s[proxy] = time.monotonic() + AVOIDED_S
            return None

        return read

    def _attempt(self, kind: str, proxy: str, request: Callable[[], object]) -> bool:
        """Whether it succeeded. An impossible answer is unexpected, and an error that no retry can fix."""
        began_s = time.monotonic()
        text = ""
        try:
            request()
        except MilvusException as error:
            text = f"{error.code}: {error.message}"
            if not is_retryable(error):
                self.unexpected.append(f"{kind} at {proxy}: {text}")
        except grpc.RpcError as error:
            text = str(error.code())
        except Wrong as wrong:
            text = str(wrong)
            self.unexpected.append(f"{kind} at {proxy}: {text}")
        self._outcomes.append(Outcome(kind, proxy, began_s, time.monotonic(), text))
        return not text

    def _read(self, proxy: str) -> None:
        client, chance = self._clients[proxy], random.Random(f"{self._seed}/{proxy}")
        asks = (_count_anchors, _get_anchors, _search_anchors)
        for number in itertools.count():
            if self._stop.is_set():
                return
            ask = asks[number % len(asks)]
            well = self._attempt(READ, proxy, lambda ask=ask: ask(client, chance))
            self._stop.wait(PAUSE_S if well else RETRY_PAUSE_S)

    def _flush(self) -> None:
        """So that there are jobs, handoffs and sealed segments. A flush may fail: it is asked for again."""
        client = MilvusClient(next(iter(self._uris.values())))
        while not self._stop.wait(FLUSH_EVERY_S):
            try:
                client.flush(NAME, timeout=5)
            except (MilvusException, grpc.RpcError):
                continue
        client.close()


class PatientWriter(Writer):
    """A writer that repeats a request until it is acknowledged, for `PATIENCE_S` at most.

    ``attempt`` runs a request and says whether it succeeded; ``others`` read keys through other proxies.
    A client that is given a timeout repeats by itself until then, and may so insert twice: it is given none.
    """

    options: Mapping[str, object] = {"retry_times": 0}

    def __init__(
        self,
        number: int,
        seed: int,
        attempt: Callable[[Callable[[], object]], bool],
        others: Sequence[Callable[[Sequence[int]], dict[int, int] | None]],
    ) -> None:
        super().__init__(number, seed, NAME, SHARDS)
        self._attempt = attempt
        self._others = others

    def work(self, client: MilvusClient, stop: threading.Event, *, until_error: bool) -> None:
        while not stop.wait(PAUSE_S):
            full = len(self.book.certain) > KEYS_MAX
            weights = (1, 3, 4, 12) if full else (6, 3, 2, 1)
            kinds = (self._insert, self._upsert, self._delete_keys, self._delete_range)
            if not self._random.choices(kinds, weights)[0](client) and until_error:
                return

    def _insert(self, client: MilvusClient) -> bool:
        self._version += 1
        keys = range(self._next_key, self._next_key + self._random.randint(1, BATCH_ROWS_MAX))
        self._next_key = keys.stop
        rows = [row_of(key, self._version) for key in keys]
        # first an insert; what is not known to be there or not is put there
        sends = itertools.chain([client.insert], itertools.repeat(client.upsert))
        return self._request(
            "insert", dict.fromkeys(keys, self._version), lambda: next(sends)(NAME, rows, **self.options)
        )

    def _request(self, what: str, wanted: dict[int, Version], send: Callable[[], object]) -> bool:
        """Acknowledged in the end, or doubtful."""
        before = {key: self.book.certain.pop(key, None) for key in wanted}
        deadline_s = time.monotonic() + PATIENCE_S
        while not self._attempt(send):
            if time.monotonic() > deadline_s:
                label = f"{what} of {len(wanted)} rows, version {self._version}"
                self.book.doubtful.append(Doubtful(label, {k: (before[k], v) for k, v in wanted.items()}))
                return False
            time.sleep(RETRY_PAUSE_S)
        self.book.certain.update({key: version for key, version in wanted.items() if version is not None})
        self.acknowledged += 1
        if self.acknowledged % CROSS_READ_EVERY == 0:
            self._read_elsewhere(wanted)
        return True

    def _read_elsewhere(self, written: Mapping[int, Version]) -> None:
        """This writer's last write is visible at every other proxy."""
        wanted = {key: version for key, version in written.items() if version is not None}
        for read in self._others:
            found = read(list(written))
            if found is not None and found != wanted:
                raise Wrong(f"after an acknowledged write of {dict(written)} another proxy reads {found}")


def anchors() -> range:
    return range(ANCHORS_FROM, ANCHORS_FROM + ANCHORS)


def _count_anchors(client: MilvusClient, _chance: random.Random) -> None:
    answer = client.query(
        NAME,
        filter=f"key >= {ANCHORS_FROM}",
        output_fields=["count(*)"],
        consistency_level="Strong",
        retry_times=0,
    )
    _expect("count(*) of what nobody touches", answer[0]["count(*)"], ANCHORS)


def _get_anchors(client: MilvusClient, chance: random.Random) -> None:
    wanted = sorted(chance.sample(anchors(), 10))
    rows = client.query(
        NAME, ids=wanted, output_fields=["version"], consistency_level="Strong", retry_times=0
    )
    _expect(
        "rows that nobody touches", sorted((r["key"], r["version"]) for r in rows), [(k, 0) for k in wanted]
    )


def _search_anchors(client: MilvusClient, chance: random.Random) -> None:
    wanted = chance.sample(anchors(), 3)
    hits = client.search(
        NAME,
        [vector_of(key, 0) for key in wanted],
        limit=1,
        search_params={"params": {"ef": 200}},
        consistency_level="Strong",
        retry_times=0,
    )
    _expect("the nearest to a row's own vector", [hit[0]["key"] if hit else None for hit in hits], wanted)


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Wrong(f"{what}: {found}, not {wanted}")

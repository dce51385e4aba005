"""The clients: what they write and read, and the check of the answers they receive.

A write that failed may or may not have taken effect; only acknowledged writes are relied on. Every answer is
passed to the judge.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from elanus.core.consistency import WIRE_BOUNDED, WIRE_EVENTUALLY, ConsistencyLevel, ReadConsistency
from elanus.core.errors import (
    ElanusError,
)
from elanus.core.names import DEFAULT_PARTITION
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.proxy.api.query import Query, QueryResult
from elanus.proxy.api.search import Search, SearchResult, SearchTemplate
from elanus.proxy.role.cache import CachedCollection
from elanus.sim.aliases import ALIAS
from elanus.sim.client_collections import KEYS, PARTITION, partitions_of, rows_of, schema_of
from elanus.sim.client_definitions import DefiningClient
from elanus.sim.client_plans import KEYED, PARTITIONED, PARTITIONS, PARTLY, PARTLY_PARTITIONS
from elanus.sim.client_verbs import ClientVerbs
from elanus.sim.judge import Acknowledged, Answer, Judge
from elanus.sim.plan import COLLECTIONS
from elanus.sim.system import System
from elanus.sim.truth import KEY, VALUE

_ROWS_MAX = 12
_ALL = 2_000
_LEVELS = (
    ConsistencyLevel.STRONG,
    ConsistencyLevel.SESSION,
    ConsistencyLevel.BOUNDED,
    ConsistencyLevel.EVENTUALLY,
)
_REMEMBERED = 20
_EVERYWHERE = 1_000_000
"""Values from here on belong to rows that are inserted into each partition."""


class Client(DefiningClient):
    """A client that writes and reads. ``number`` identifies it in the scenario's operations."""

    def __init__(self, number: int, system: System, judge: Judge, random_: random.Random) -> None:
        super().__init__(number, system, judge, random_)
        self._session: dict[str, Timestamp] = {}
        self._answers: dict[str, deque[Answer]] = {}

    # writes

    async def _insert(self, name: str) -> str:
        return await self._write(name, replaces=False)

    async def _upsert(self, name: str) -> str:
        return await self._write(name, replaces=True)

    async def _write(self, name: str, *, replaces: bool) -> str:
        keys = self._random.sample(range(KEYS), self._random.randint(1, _ROWS_MAX))
        values = [16 * self._number + place for place in range(len(keys))]
        partition = self._partition(name)
        begun = self._judge.aliases.begin()
        self._system.trace.note(f"{self.name}: writes {keys} with {values} into {partition}", keys)
        cached, ts = await self._system.ask(
            self._proxy(),
            "write",
            lambda verbs: verbs.write(
                name, partition, lambda schema: rows_of(keys, values, schema), replaces=replaces
            ),
        )
        self._check_name(name, begun, cached, tuple(keys))
        self._acknowledge(name, cached, ts, keys, values)
        return f"acknowledged at {ts}"

    async def _insert_everywhere(self, name: str) -> str:
        """Insert a row into each partition."""
        for place, partition in enumerate(partitions_of(name)):
            keys, values = [self._random.randrange(KEYS)], [_EVERYWHERE + 64 * self._number + place]
            self._system.trace.note(f"{self.name}: writes {keys} with {values} into {partition}", keys)
            await self._write_rows(name, partition, keys, values)
        return f"a row in each of {len(partitions_of(name))} partitions"

    async def _write_rows(self, name: str, partition: str, keys: list[int], values: list[int]) -> None:
        cached, ts = await self._system.ask(
            self._proxy(),
            "write",
            lambda verbs: verbs.write(
                name, partition, lambda schema: rows_of(keys, values, schema), replaces=False
            ),
        )
        self._acknowledge(name, cached, ts, keys, values)

    def _partition(self, name: str) -> str:
        """Draw the partition that a write goes to; "": a partition key decides."""
        if name == KEYED:
            return ""
        if name == PARTITIONED:
            return self._random.choice(PARTITIONS)
        if name == PARTLY:
            return self._random.choice((DEFAULT_PARTITION, *PARTLY_PARTITIONS))
        return PARTITION if self._random.random() < 0.25 else DEFAULT_PARTITION

    async def _write_misfit(self, name: str) -> str:
        """Write rows of the other collection. No reader may fail because of them."""
        keys = self._random.sample(range(KEYS), self._random.randint(1, _ROWS_MAX))
        (other,) = COLLECTIONS.keys() - {name}
        rows = rows_of(keys, keys, schema_of(other))
        _, ts = await self._system.ask(self._proxy(), "write", lambda verbs: verbs.write_misfit(name, rows))
        return f"rows of {other} at {ts}"

    async def _delete(self, name: str) -> str:
        keys = self._random.sample(range(KEYS), self._random.randint(1, 2 * _ROWS_MAX))
        return await self._delete_by(name, f"{KEY} in {sorted(keys)}")

    async def _delete_where(self, name: str) -> str:
        return await self._delete_by(name, f"{VALUE} % 37 == {self._random.randrange(37)}")

    async def _delete_by(self, name: str, text: str) -> str:
        begun = self._judge.aliases.begin()
        cached, ts, keys = await self._system.ask(
            self._proxy(), "delete", lambda verbs: verbs.delete(name, text)
        )
        if keys:
            self._check_name(name, begun, cached, tuple(keys))
            self._acknowledge(name, cached, ts, keys, [])
        return f"deleted at {ts}: {keys}"

    def _check_name(self, name: str, begun: int, cached: CachedCollection, keys: tuple[int, ...]) -> None:
        if name == ALIAS:
            self._judge.aliases.check(begun, cached.view.name, keys)

    def _acknowledge(
        self,
        name: str,
        cached: CachedCollection,
        ts: Timestamp,
        keys: list[int],
        values: list[int],
        replaced: Sequence[int] = (),
    ) -> None:
        self._judge.acknowledged(
            Acknowledged(
                cached.collection_id, cached.view.vchannels, ts, tuple(keys), tuple(values), tuple(replaced)
            )
        )
        self._session[name] = ts
        if self._system.log.full_pchannels():
            self._system.trace.count("writes next to a full pchannel")

    # reads

    async def _count(self, name: str, level: ConsistencyLevel | None = None) -> str:
        cached, result = await self._read(name, ("count(*)",), "", level)
        count = result.fields["count(*)"][0].as_py()
        self._judge.check_count(cached, result.ts, count)
        return f"{count} at {result.ts}"

    async def _query(self, name: str, level: ConsistencyLevel | None = None) -> str:
        return await self._query_all(name, None, level)

    async def _query_where(self, name: str, level: ConsistencyLevel | None = None) -> str:
        return await self._query_all(name, self._random.randrange(1, 16 * self._number + 2), level)

    async def _query_all(self, name: str, bound: int | None, level: ConsistencyLevel | None) -> str:
        text = f"{KEY} >= 0" if bound is None else f"{VALUE} < {bound}"
        cached, result = await self._read(name, (KEY, VALUE), text, level)
        answer = Answer(cached.collection_id, result.ts, bound, _pairs(result))
        keys, values = [key for key, _ in answer.rows], [value for _, value in answer.rows]
        selects = None if bound is None else lambda value: value < bound
        self._judge.check_rows(cached, result.ts, keys, values, selects)
        # at a lower ts nothing is served yet, and it is a request, not a moment
        if result.ts > WIRE_BOUNDED and self._judge.loads.are_whole:
            self._answers.setdefault(name, deque(maxlen=_REMEMBERED)).append(answer)
        return f"{len(answer.rows)} rows{'' if bound is None else f' below {bound}'} at {result.ts}"

    async def _query_values(self, name: str) -> str:
        """Query by a few values, whose partitions alone are read where the value is the partition key."""
        number = self._random.randrange(1, self._number + 2)
        wanted = [16 * number + place for place in range(self._random.randint(1, 4))]
        cached, result = await self._read(name, (KEY, VALUE), f"{VALUE} in {wanted}", None)
        rows = _pairs(result)
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        self._judge.check_rows(cached, result.ts, keys, values, wanted.__contains__)
        return f"{len(rows)} rows with {wanted} at {result.ts}"

    async def _query_again(self, name: str) -> str:
        """Repeat an earlier read at its timestamp."""
        if name not in self._answers:
            return "nothing was read yet"
        before = self._random.choice(self._answers[name])
        text = f"{KEY} >= 0" if before.bound is None else f"{VALUE} < {before.bound}"
        pinned = ReadConsistency(None, before.ts, pinned=True)
        request_of = partial(
            Query,
            partitions=(),
            filter=text,
            output_fields=(KEY, VALUE),
            limit=None,
            offset=0,
            consistency=pinned,
        )
        cached, result = await self._system.ask(
            self._proxy(), "query", lambda verbs: verbs.query(name, request_of)
        )
        if cached.collection_id != before.collection_id:
            return "another collection has its name now"
        self._system.trace.count("reads repeated")
        self._judge.check_repeated(before, result.ts, _pairs(result))
        return f"again {len(before.rows)} rows at {before.ts}"

    async def _search(self, name: str, level: ConsistencyLevel | None = None) -> str:
        level, consistency = self._consistency(name, level)
        since = self._judge.since(self._now())
        session = self._session.get(name, NO_TIMESTAMP)
        query = np.array([[float(self._random.randrange(1000)), 0.0]], dtype=np.float32)

        def request_of(cached: CachedCollection) -> Search:
            return Search(cached, SearchTemplate(_ALL, output_fields=(VALUE,)), query, consistency)

        async def search(verbs: ClientVerbs) -> tuple[CachedCollection, SearchResult, Timestamp]:
            cached, result = await verbs.search(name, request_of)
            return cached, result, self._judge.ticked(cached)

        with self._timed(level):
            cached, result, ticked = await self._system.ask(self._proxy(), "search", search)
        self._judge.check_moment(cached, result.ts, level, session, since, ticked)
        self._system.trace.count("reads judged")
        self._judge.check_rows(cached, result.ts, result.ids.tolist(), None)
        return f"{len(result.ids)} hits at {result.ts}"

    async def _read(
        self, name: str, fields: tuple[str, ...], text: str, level: ConsistencyLevel | None
    ) -> tuple[CachedCollection, QueryResult]:
        level, consistency = self._consistency(name, level)
        since = self._judge.since(self._now())
        session = self._session.get(name, NO_TIMESTAMP)

        def request_of(cached: CachedCollection) -> Query:
            return Query(cached, (), text, self._asked_of(cached, fields), None, 0, consistency)

        async def query(verbs: ClientVerbs) -> tuple[CachedCollection, QueryResult, Timestamp]:
            cached, result = await verbs.query(name, request_of)
            return cached, result, self._judge.ticked(cached)

        with self._timed(level):
            cached, result, ticked = await self._system.ask(self._proxy(), "query", query)
        self._judge.check_moment(cached, result.ts, level, session, since, ticked)
        self._system.check_nodes()
        self._system.trace.count("reads judged")
        return cached, result

    def _asked_of(self, cached: CachedCollection, fields: tuple[str, ...]) -> tuple[str, ...]:
        """The fields that a read asks for of a collection that is to be read by these."""
        return fields

    @contextmanager
    def _timed(self, level: ConsistencyLevel) -> Iterator[None]:
        """Have the judge look at how long a read took, also if it failed."""
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            yield
        except ElanusError:
            self._judge.check_wait(level, now_s() - began_s)
            raise
        self._judge.check_wait(level, now_s() - began_s)

    def _consistency(
        self, name: str, level: ConsistencyLevel | None
    ) -> tuple[ConsistencyLevel, ReadConsistency]:
        level = self._random.choice(_LEVELS) if level is None else level
        return level, ReadConsistency(level, self._session.get(name, WIRE_EVENTUALLY))

    def _now(self) -> Timestamp:
        """The oracle's current timestamp; while it is down, the lowest one, which demands nothing."""
        try:
            return self._system.stamp()
        except ElanusError:
            return NO_TIMESTAMP


def _pairs(result: QueryResult) -> tuple[tuple[int, int], ...]:
    """The keys with their values."""
    keys, values = (result.fields[column].to_pylist() for column in (KEY, VALUE))
    return tuple(zip(keys, values, strict=True))

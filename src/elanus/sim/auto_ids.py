"""Clients of the collection with automatic keys: they upsert and delete by the keys that writes returned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.cache import CachedCollection
from elanus.sim.truth import KEY, VALUE
from elanus.sim.workload import Client

_ROWS_MAX = 8
_KEYS_KEPT = 60
"""How many keys a client remembers: of the rest, few are ever used again."""


class AutoIdClient(Client):
    """A client that knows the keys of rows it wrote. Some of these rows may have been replaced since."""

    _keys: tuple[int, ...] = ()

    async def _insert(self, name: str) -> str:
        return await self._write_automatic(name, ())

    async def _upsert(self, name: str) -> str:
        """Replace some rows; as a client that repeats a failed upsert does, also rows that are gone."""
        return await self._write_automatic(name, self._some_keys(_ROWS_MAX))

    async def _delete(self, name: str) -> str:
        keys = self._some_keys(_ROWS_MAX)
        if not keys:
            return "no key is known yet"
        attempt = self._judge.upserts.deleting(keys)
        cached, ts, _ = await self._system.ask(
            self._proxy(), "delete", lambda verbs: verbs.delete(name, f"{KEY} in {sorted(keys)}")
        )
        attempt.ts = ts
        self._acknowledge(name, cached, ts, list(keys), [])
        return f"deleted at {ts}: {keys}"

    def _some_keys(self, count_max: int) -> tuple[int, ...]:
        count = min(len(self._keys), self._random.randint(1, count_max))
        return tuple(self._random.sample(self._keys, count))

    async def _write_automatic(self, name: str, replaced: tuple[int, ...]) -> str:
        """Insert rows, or replace those with the given keys."""
        count = len(replaced) or self._random.randint(1, _ROWS_MAX)
        values = [16 * self._number + place for place in range(count)]
        partition = self._partition(name)
        if replaced:
            self._judge.upserts.replacing(replaced, values)
        self._system.trace.note(f"{self.name}: writes {values} for {replaced} into {partition}", replaced)
        cached, ts, keys = await self._system.ask(
            self._proxy(),
            "write",
            lambda verbs: verbs.write_automatic(
                name, partition, lambda schema: _rows(replaced, values, schema), replaces=bool(replaced)
            ),
        )
        self._wrote(name, cached, ts, keys, values, replaced)
        return f"acknowledged at {ts}: {keys}"

    def _wrote(
        self,
        name: str,
        cached: CachedCollection,
        ts: Timestamp,
        keys: list[int],
        values: list[int],
        replaced: tuple[int, ...],
    ) -> None:
        self._judge.upserts.collections.add(cached.collection_id)
        self._acknowledge(name, cached, ts, keys, values, replaced)
        self._keys = (*self._keys, *keys)[-_KEYS_KEPT:]


def _rows(replaced: tuple[int, ...], values: list[int], of: CollectionSchema) -> pa.RecordBatch:
    """Return rows with these values, and with the keys that they replace, if any."""
    vectors = np.array([[value, 1.0] for value in values], dtype=np.float32)
    kind = of.field("vector").arrow_type
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind)
    columns = {KEY: pa.array(replaced, pa.int64())} if replaced else {}
    return pa.RecordBatch.from_pydict(columns | {VALUE: pa.array(values, pa.int64()), "vector": flat})

"""Fresh keys in the shards of the keys that they replace."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.channels import shard_of_keys
from elanus.proxy.role.fresh_keys import keys_in_shards_of


class Ids:
    """Consecutive ids; ``taken`` lists how many each call took."""

    def __init__(self, first: int = 1_000_000) -> None:
        self._next = first
        self.taken: list[int] = []

    def take(self, count: int) -> int:
        self._next, first = self._next + count, self._next
        self.taken.append(count)
        return first


@pytest.mark.parametrize("shards", [1, 2, 3, 16])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
@pytest.mark.parametrize("count", [1, 2, 700])
def test_every_fresh_key_is_unique_and_in_the_shard_of_its_predecessor(
    shards: int, kind: pa.DataType, count: int
) -> None:
    ids = Ids()
    replaced = pa.array(np.random.default_rng(3).integers(0, 1 << 40, count)).cast(kind)
    fresh = keys_in_shards_of(replaced, shards, ids.take)
    assert fresh.type == kind
    assert len(set(fresh.to_pylist())) == count
    assert shard_of_keys(fresh, shards).tolist() == shard_of_keys(replaced, shards).tolist()
    taken = range(1_000_000, 1_000_000 + sum(ids.taken))
    assert all(int(key) in taken for key in fresh.to_pylist())


def test_keys_that_are_all_in_one_shard_take_few_rounds() -> None:
    keys = pa.array(range(60_000))
    crowded = keys.filter(pa.array(shard_of_keys(keys, 16) == 5))
    ids = Ids()
    fresh = keys_in_shards_of(crowded, 16, ids.take)
    assert set(shard_of_keys(fresh, 16).tolist()) == {5}
    assert len(ids.taken) <= 2
    assert sum(ids.taken) < 18 * len(crowded)


def test_ids_are_taken_until_every_row_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.proxy.role.fresh_keys._IDS_AT_ONCE_MAX", 1)
    ids = Ids()
    replaced = pa.array(range(10))
    fresh = keys_in_shards_of(replaced, 4, ids.take)
    assert set(ids.taken) == {1}
    assert len(ids.taken) > 10, "some ids fit no row"
    assert shard_of_keys(fresh, 4).tolist() == shard_of_keys(replaced, 4).tolist()

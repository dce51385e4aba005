"""A definition costs the same with ten collections and with five hundred, and names find what they found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from counting import steps_of
from fakes import collection, schema, settle
from hypothesis import given
from hypothesis import strategies as st
from root_bench import Bench, new, started

from elanus.core.catalog import Collection, Database
from elanus.core.channels import pchannel_of
from elanus.core.ids import CollectionID, DatabaseID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.meta.memory import MemoryMeta
from elanus.rootcoord.catalog import Catalog

FEW, MANY = 10, 500
Work = Callable[[Bench], Awaitable[object]]


async def create(bench: Bench) -> None:
    await bench.root.create_collection(new("one more"))


async def drop(bench: Bench) -> None:
    await bench.root.drop_collection("default", "c7")
    await bench.root.tidy()


async def describe(bench: Bench) -> None:
    assert (await bench.root.describe_collection("default", "c7")).name == "c7"


async def name(bench: Bench) -> None:
    await bench.root.create_alias("default", "c7", "a")
    await bench.root.alter_alias("default", "c8", "a")
    await bench.root.drop_alias("default", "a")
    await bench.root.rename_collection("default", "c7", "d", "")


@pytest.mark.parametrize("work", [create, drop, describe, name])
async def test_the_cost_of_one_is_the_same_among_many(work: Work) -> None:
    costs = []
    for count in (FEW, MANY):
        bench, root = await started(*(f"c{n}" for n in range(count)))
        await asyncio.sleep(60)
        await settle()
        costs.append(await steps_of(lambda bench=bench: work(bench)))  # type: ignore[misc]
        await root.stop()
    assert costs[1] < 1.2 * costs[0] + 200, costs


DATABASES = [Database(DatabaseID(n), f"db{n}", Timestamp(0)) for n in (1, 2)]
NAMES = ["a", "b", "c", "d"]


def shown(number: int, database: int, own: str, alias: str | None, dropped: bool) -> Collection:
    made = collection(schema(own), CollectionID(number), shards=2, pchannels=2 + number)
    return replace(
        made,
        database_id=DATABASES[database].database_id,
        aliases=(alias,) if alias and alias != own else (),
        dropped=Timestamp(5) if dropped else NO_TIMESTAMP,
    )


changes = st.one_of(
    st.builds(
        shown,
        st.integers(1, 4),
        st.integers(0, 1),
        st.sampled_from(NAMES),
        st.sampled_from([None, *NAMES]),
        st.booleans(),
    ),
    st.integers(1, 4),
)


@given(st.lists(changes, max_size=30))
def test_every_look_up_agrees_with_a_search_through_all(made: list[Collection | int]) -> None:
    catalog, known = Catalog(MemoryMeta()), dict[int, Collection]()

    async def apply() -> None:
        for change in made:
            if isinstance(change, int):
                if change in known:
                    await catalog.remove(known.pop(change))
            elif not taken(change):
                await catalog.put(change)
                known[change.collection_id] = change

    def taken(change: Collection) -> bool:
        """Whether another collection has the name: rootcoord refuses such a change."""
        return any(
            {c.name, *c.aliases} & {change.name, *change.aliases}
            for c in known.values()
            if c.database_id == change.database_id and c.collection_id != change.collection_id
            if c.dropped == NO_TIMESTAMP == change.dropped
        )

    asyncio.run(apply())
    live = {c.collection_id for c in known.values() if c.dropped == NO_TIMESTAMP}
    assert {c.collection_id for c in catalog.live()} == live
    assert catalog.live_count() == len(live)
    assert {c.collection_id for c in catalog.dropped()} == known.keys() - live
    assert catalog.vchannel_counts() == Counter(pchannel_of(v) for c in known.values() for v in c.vchannels)
    for database in DATABASES:
        own = [known[i] for i in sorted(live) if known[i].database_id == database.database_id]
        assert list(catalog.in_database(database)) == own
        assert catalog.is_empty(database) == (not own)
        for wanted in NAMES:
            found = [c for c in own if wanted in (c.name, *c.aliases)]
            assert catalog.find(database, wanted) == (found[0] if found else None)

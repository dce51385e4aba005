"""The id of a cluster in the metadata and with the objects: whichever is lost or exchanged is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes import inline

from elanus.core.errors import Unavailable
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Delete, MetaStore
from elanus.server.cluster.identity import KEY, PATH, ClusterIdentity
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectStore

META, STORE = "etcd://etcd1:2379/elanus", "s3://bucket/elanus?credentials=/secret"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/objects")


@asynccontextmanager
async def metadata() -> AsyncIterator[MemoryMeta]:
    meta = MemoryMeta(asyncio.get_running_loop().time)
    yield meta
    await meta.close()


async def opened(meta: MetaStore, store: ObjectStore) -> ClusterIdentity:
    return await ClusterIdentity.open(meta, store, meta_url=META, store_url=STORE, offload=inline)


async def test_processes_of_one_cluster_agree(store: ObjectStore) -> None:
    async with metadata() as meta:
        several = await asyncio.gather(*(opened(meta, store) for _ in range(5)))
        for identity in several:
            await identity.check()
        found = await meta.get(KEY)
        assert found is not None
        assert bytes(store.get(PATH)) == found.value


async def test_empty_metadata_is_refused_with_what_to_do(store: ObjectStore) -> None:
    async with metadata() as meta, metadata() as empty:
        await opened(meta, store)
        with pytest.raises(Unavailable, match=r"etcd1.* is empty.*restore etcd from its snapshot") as caught:
            await opened(empty, store)
        assert await empty.get(KEY) is None, "nothing is written there"
        assert "/secret" not in caught.value.message


async def test_metadata_that_is_emptied_under_a_running_process_is_refused(store: ObjectStore) -> None:
    async with metadata() as meta:
        identity = await opened(meta, store)
        await meta.txn([Delete(KEY)])
        with pytest.raises(Unavailable, match="is empty"):
            await identity.check()


async def test_metadata_of_another_cluster_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    elsewhere = open_store(f"file://{tmp_path}/others")
    async with metadata() as meta, metadata() as other:
        await opened(meta, store)
        await opened(other, elsewhere)
        with pytest.raises(Unavailable, match="is that of cluster"):
            await opened(other, store)


async def test_a_start_that_was_cut_off_between_the_two_is_completed(store: ObjectStore) -> None:
    async with metadata() as meta:
        await opened(meta, store)
        store.delete(PATH)
        await opened(meta, store)
        found = await meta.get(KEY)
        assert found is not None
        assert bytes(store.get(PATH)) == found.value

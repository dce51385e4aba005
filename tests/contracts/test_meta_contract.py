"""The contract of every metadata store (`elanus.meta.port.MetaStore`), run against every adapter.

An adapter joins with one entry in `meta_adapters.ADAPTERS`. Leases and watches: `test_meta_leases`.
"""

from __future__ import annotations

import asyncio

import pytest
from meta_adapters import WithStore

from elanus.meta.port import (
    TXN_COMPARES_MAX,
    TXN_MAX_BYTES,
    TXN_OPERATIONS_MAX,
    VALUE_MAX_BYTES,
    Compare,
    CompareFailed,
    Delete,
    MetaStore,
    Put,
    StoreClosed,
    Versioned,
)


def test_what_was_put_is_got(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        revision = await store.txn([Put("a/1", b"one"), Put("a/2", b"")])
        assert await store.get("a/1") == Versioned(b"one", revision)
        assert await store.get("a/2") == Versioned(b"", revision)
        assert await store.get("a") is None
        assert await store.get("a/") is None

    with_store(use)


def test_every_put_gets_a_larger_revision(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        revisions = [await store.txn([Put("a", b"same")]) for _ in range(5)]
        assert revisions == sorted(set(revisions))
        assert revisions[0] > 0
        found = await store.get("a")
        assert found is not None
        assert found.revision == revisions[-1]

    with_store(use)


def test_a_listing_is_in_key_order_and_holds_the_prefix_only(with_store: WithStore) -> None:
    keys = ["a", "a/", "a/10", "a/2", "a/b/c", "a0", "ab", "a/~", "a/~~", "b", "A/1"]

    async def use(store: MetaStore) -> None:
        await store.txn([Put(key, key.encode()) for key in reversed(keys)])
        for prefix in ("a/", "a", "", "a/b/c", "a/~", "zz"):
            found = await store.list(prefix)
            assert [key for key, _ in found] == sorted(key for key in keys if key.startswith(prefix))
            assert all(entry.value == key.encode() for key, entry in found)

    with_store(use)


def test_a_transaction_applies_when_every_comparison_holds(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        first = await store.txn([Put("a", b"1")], [Compare("a", 0), Compare("b", 0)])
        second = await store.txn([Put("b", b"2"), Delete("a")], [Compare("a", first)])
        assert await store.get("a") is None
        assert await store.get("b") == Versioned(b"2", second)

    with_store(use)


def test_a_failed_comparison_applies_nothing_and_names_the_keys(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        first = await store.txn([Put("a", b"1"), Put("b", b"1")])
        await store.txn([Put("b", b"2")])
        for compares in ([Compare("a", 0)], [Compare("b", first)], [Compare("new", 1)]):
            with pytest.raises(CompareFailed) as failed:
                await store.txn(
                    [Put("a", b"x"), Delete("b"), Put("c", b"x")], [Compare("a", first), *compares][-2:]
                )
            assert failed.value.keys == (compares[0].key,)
        assert [(key, entry.value) for key, entry in await store.list("")] == [("a", b"1"), ("b", b"2")]

    with_store(use)


def test_of_two_that_compare_the_same_revision_one_wins(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        async def increment() -> None:
            while True:
                found = await store.get("n")
                value, revision = (0, 0) if found is None else (int(found.value), found.revision)
                try:
                    await store.txn([Put("n", str(value + 1).encode())], [Compare("n", revision)])
                except CompareFailed:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(20)))
        found = await store.get("n")
        assert found is not None
        assert found.value == b"20"

    with_store(use)


def test_deleting_what_is_not_there_is_no_error(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        await store.txn([Delete("a")])
        assert list(await store.list("")) == []

    with_store(use)


def test_a_deleted_key_starts_again_with_a_larger_revision(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        first = await store.txn([Put("a", b"1")])
        await store.txn([Delete("a")])
        again = await store.txn([Put("a", b"2")], [Compare("a", 0)])
        assert again > first
        with pytest.raises(CompareFailed):
            await store.txn([Put("a", b"3")], [Compare("a", first)])

    with_store(use)


def test_comparisons_alone_only_check(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        revision = await store.txn([Put("a", b"1")])
        assert await store.txn([], [Compare("a", revision)]) == revision
        with pytest.raises(CompareFailed):
            await store.txn([], [Compare("a", 0)])

    with_store(use)


@pytest.mark.parametrize(
    "operations",
    [
        [Put(f"k{n}", b"") for n in range(TXN_OPERATIONS_MAX + 1)],
        [Put("a", bytes(VALUE_MAX_BYTES + 1))],
        [Put("a", bytes(TXN_MAX_BYTES // 2)), Put("b", bytes(TXN_MAX_BYTES // 2))],
        [Put("a", b"1"), Delete("a")],
        [Put("ä", b"")],
        [Put("", b"")],
        [Put("a\n", b"")],
    ],
    ids=["operations", "value", "bytes", "key twice", "no ASCII", "no key", "control"],
)
def test_what_etcd_would_not_take_is_refused(with_store: WithStore, operations: list[Put | Delete]) -> None:
    async def use(store: MetaStore) -> None:
        with pytest.raises(ValueError, match=r"transaction|record|key"):
            await store.txn(operations)
        assert list(await store.list("")) == []

    with_store(use)


def test_a_transaction_at_the_limits_is_taken(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        await store.txn([Put("big", bytes(VALUE_MAX_BYTES))])
        keys = [f"k{n:03d}" for n in range(TXN_OPERATIONS_MAX)]
        await store.txn([Put(key, b"x") for key in keys], [Compare(key, 0) for key in keys])
        assert [key for key, _ in await store.list("k")] == keys
        too_many = [Compare(f"k{n}", 0) for n in range(TXN_COMPARES_MAX + 1)]
        with pytest.raises(ValueError, match="comparisons"):
            await store.txn([], too_many)

    with_store(use)


def test_a_closed_store_answers_nothing(with_store: WithStore) -> None:
    async def use(store: MetaStore) -> None:
        await store.close()
        for call in (store.get("a"), store.list(""), store.txn([Put("a", b"")])):
            with pytest.raises(StoreClosed):
                await call
        await store.close()

    with_store(use)


def test_entries_and_revisions_outlast_the_store(with_lasting_store: WithStore) -> None:
    revisions: list[int] = []

    async def write(store: MetaStore) -> None:
        revisions.append(await store.txn([Put("a", b"1"), Put("b", b"1")]))
        revisions.append(await store.txn([Delete("b")]))

    async def read(store: MetaStore) -> None:
        assert await store.list("") == [("a", Versioned(b"1", revisions[0]))]
        assert await store.txn([Put("c", b"")]) > revisions[-1]

    with_lasting_store(write)
    with_lasting_store(read)

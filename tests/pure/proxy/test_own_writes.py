"""The memory of each client's last writes: for how long, and of how many clients."""

from __future__ import annotations

from elanus.core.ids import CollectionID
from elanus.core.timestamps import NO_TIMESTAMP, compose
from elanus.proxy.role.own_writes import OwnWrites

BOOKS, PAPERS = CollectionID(1), CollectionID(2)
GRACE_MS = 5000


def test_the_last_write_is_known_by_client_and_collection() -> None:
    writes = OwnWrites(GRACE_MS)
    writes.note("a", BOOKS, compose(100_000))
    writes.note("a", BOOKS, compose(99_000))  # of two threads, in this order
    writes.note("b", PAPERS, compose(100_001))
    assert writes.last("a", BOOKS) == compose(100_000)
    assert writes.last("b", PAPERS) == compose(100_001)
    assert writes.last("a", PAPERS) == writes.last("b", BOOKS) == NO_TIMESTAMP


def test_a_client_without_a_name_has_no_writes() -> None:
    writes = OwnWrites(GRACE_MS)
    writes.note("", BOOKS, compose(100_000))
    assert writes.last("", BOOKS) == writes.last("a", BOOKS) == NO_TIMESTAMP


def test_a_write_is_known_for_the_grace_and_forgotten_later() -> None:
    writes = OwnWrites(GRACE_MS)
    for second in range(60):
        written = compose(100_000 + 1000 * second)
        writes.note(f"client {second}", BOOKS, written)
        assert writes.last(f"client {max(0, second - 5)}", BOOKS) > NO_TIMESTAMP
        known = [n for n in range(second + 1) if writes.last(f"client {n}", BOOKS)]
        assert len(known) <= 13
    assert writes.last("client 30", BOOKS) == NO_TIMESTAMP


def test_of_more_clients_than_are_kept_the_writes_are_everybodys() -> None:
    writes = OwnWrites(GRACE_MS, clients_max=2)
    for number, client in enumerate("abcd"):
        writes.note(client, BOOKS, compose(100_000 + number))
    writes.note("a", BOOKS, compose(100_010))
    assert writes.last("a", BOOKS) == compose(100_010)
    assert writes.last("d", BOOKS) == writes.last("c", BOOKS) == writes.last("b", BOOKS) == compose(100_003)
    assert writes.last("nobody", BOOKS) == compose(100_003)
    assert writes.last("nobody", PAPERS) == NO_TIMESTAMP

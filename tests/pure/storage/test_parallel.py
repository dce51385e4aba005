"""Many calls of a store: as many at a time as it gains from, and in order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from elanus.storage.local import LocalStore
from elanus.storage.parallel import for_each, write_each
from elanus.storage.port import ObjectExists, ObjectMissing, ObjectStore

PATIENCE_S = 30.0


class RemoteStore(LocalStore):
    """Answers when as many calls as it takes at once are waiting."""

    calls_at_once = 8

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.together = threading.Barrier(self.calls_at_once)

    def url_of(self, path: str) -> str:
        self.together.wait(PATIENCE_S)
        return f"{self.url}/{path}"


def url_of(store: ObjectStore, path: str) -> str:
    assert isinstance(store, RemoteStore)
    return store.url_of(path)


def test_a_remote_store_gets_many_calls_at_a_time(tmp_path: Path) -> None:
    store = RemoteStore(tmp_path)
    paths = [str(n) for n in range(3 * store.calls_at_once)]
    assert for_each(store, url_of, paths) == [f"{store.url}/{path}" for path in paths]


def test_a_local_store_is_called_in_the_callers_thread(tmp_path: Path) -> None:
    threads = for_each(LocalStore(tmp_path), lambda store, item: threading.get_ident(), [1, 2, 3])
    assert threads == [threading.get_ident()] * 3
    assert for_each(LocalStore(tmp_path), lambda store, item: item, []) == []


class SyncedStore(LocalStore):
    """Ends writes when as many wait as it takes at once: as a disk ends many syncs together."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.together = threading.Barrier(self.writes_at_once)

    def written(self, path: str) -> str:
        self.together.wait(PATIENCE_S)
        return path


def test_a_local_store_writes_many_objects_at_a_time_because_each_write_waits_for_the_disk(
    tmp_path: Path,
) -> None:
    def write(store: ObjectStore, path: str) -> str:
        assert isinstance(store, SyncedStore)
        return store.written(path)

    store = SyncedStore(tmp_path)
    assert store.writes_at_once > 1
    paths = [str(n) for n in range(3 * store.writes_at_once)]
    assert write_each(store, write, paths) == paths


def test_a_write_that_fails_is_raised_when_those_that_had_begun_have_ended(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("taken", b"x")
    begun, failed = threading.Barrier(3), threading.Event()

    def write(s: ObjectStore, path: str) -> None:
        begun.wait(PATIENCE_S)
        if path == "taken":
            failed.set()
        else:
            assert failed.wait(PATIENCE_S)
        s.put(path, b"y")

    with pytest.raises(ObjectExists, match="taken"):
        write_each(store, write, ["first", "taken", "last"])
    assert [bytes(memoryview(store.get(path))) for path in ("first", "taken", "last")] == [b"y", b"x", b"y"]


@pytest.mark.parametrize("at_once", [1, 4])
def test_the_first_failure_is_raised(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "calls_at_once", at_once)
    store = LocalStore(tmp_path)
    store.put("there", b"x")
    with pytest.raises(ObjectMissing, match="gone"):
        for_each(store, lambda s, path: s.get(path), ["there", "gone", "gone too"])

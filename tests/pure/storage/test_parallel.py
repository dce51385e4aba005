"""Many calls of a store: as many at a time as it gains from, and in order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from elanus.storage.local import LocalStore
from elanus.storage.parallel import for_each
from elanus.storage.port import ObjectMissing, ObjectStore

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


@pytest.mark.parametrize("at_once", [1, 4])
def test_the_first_failure_is_raised(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "calls_at_once", at_once)
    store = LocalStore(tmp_path)
    store.put("there", b"x")
    with pytest.raises(ObjectMissing, match="gone"):
        for_each(store, lambda s, path: s.get(path), ["there", "gone", "gone too"])

"""The contract of every object store (`elanus.storage.port.ObjectStore`), run against every adapter."""

from __future__ import annotations

import pickle
import random
import threading
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elanus.storage.objects import open_store
from elanus.storage.port import ObjectExists, ObjectMissing, ObjectStore


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.services)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        return open_store(request.getfixturevalue("s3_server").store_url(uuid.uuid4().hex))
    return open_store((tmp_path / "files").as_uri())


def content(store: ObjectStore, path: str) -> bytes:
    return store.get(path).to_pybytes()


def paths(store: ObjectStore, prefix: str = "") -> set[str]:
    return {info.path for info in store.list(prefix)}


LARGE_BYTES = 40_000_000
"""More than a store behind a network takes in one piece."""


@pytest.mark.parametrize("data", [b"", b"x", b"0123456789" * 100_000], ids=len)
def test_what_was_put_is_got(store: ObjectStore, data: bytes) -> None:
    store.put("a/b/one", data)
    assert content(store, "a/b/one") == data
    assert store.head("a/b/one").size_bytes == len(data)


@pytest.mark.parametrize("wrap", [bytes, memoryview, pa.py_buffer])
def test_every_kind_of_buffer_can_be_put(store: ObjectStore, wrap: type) -> None:
    store.put("one", wrap(b"abc"))
    assert content(store, "one") == b"abc"


def test_an_object_is_written_once(store: ObjectStore, tmp_path: Path) -> None:
    store.put("a/one", b"first")
    source = tmp_path / "source"
    source.write_bytes(b"third")
    with pytest.raises(ObjectExists, match="a/one"):
        store.put("a/one", b"second")
    with pytest.raises(ObjectExists, match="a/one"):
        store.put_file("a/one", source)
    assert content(store, "a/one") == b"first"
    assert paths(store) == {"a/one"}


@pytest.mark.parametrize("store", ["local"], indirect=True)  # Swift looks first, then writes
def test_of_many_writers_of_one_path_one_wins(store: ObjectStore) -> None:
    outcomes: list[int | None] = []

    def write(number: int) -> None:
        try:
            store.put("a/b/contested", str(number).encode() * 50_000)
            outcomes.append(number)
        except ObjectExists:
            outcomes.append(None)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number in outcomes if number is not None]
    assert len(outcomes) == 8
    assert content(store, "a/b/contested") == str(winner).encode() * 50_000


def test_a_file_is_taken_over(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"from a file")
    store.put_file("x/y/taken", source)
    assert content(store, "x/y/taken") == b"from a file"
    assert not source.exists()


def test_a_large_file_is_taken_over_whole_and_once(store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(LARGE_BYTES)
    source = tmp_path / "source"
    source.write_bytes(data)
    store.put_file("large", source)
    assert not source.exists()
    source.write_bytes(b"other" * 10_000_000)
    with pytest.raises(ObjectExists, match="large"):
        store.put_file("large", source)
    assert source.exists()
    assert store.head("large").size_bytes == LARGE_BYTES
    assert store.local_path("large", tmp_path).read_bytes() == data


def test_an_object_is_read_here_and_there(store: ObjectStore) -> None:
    data = bytes(range(256)) * 1000
    store.put("a/one", data)
    with store.open("a/one") as file:
        assert file.size() == len(data)
        file.seek(1000)
        assert file.read(500) == data[1000:1500]
        assert file.tell() == 1500
        file.seek(-7, 2)
        assert file.read() == data[-7:]
        assert file.read() == b""
        assert file.read_at(10, 5) == data[5:15]
    with pytest.raises(ObjectMissing, match="nothing"):
        store.open("nothing")


def test_a_table_is_read_by_columns(store: ObjectStore, tmp_path: Path) -> None:
    table = pa.table({"a": list(range(5000)), "b": [str(n) for n in range(5000)]})
    pq.write_table(table, tmp_path / "table", row_group_size=1000)
    store.put_file("table", tmp_path / "table")
    with pq.ParquetFile(store.open("table"), pre_buffer=True) as file:
        assert file.read(["b"]).equals(table.select(["b"]))
        assert file.read_row_group(3, ["a"]).equals(table.select(["a"]).slice(3000, 1000))


def test_a_store_that_can_be_used_passes_its_check(store: ObjectStore) -> None:
    store.check()
    store.put("one", b"x")
    store.check()


def test_a_local_path_shows_the_content(store: ObjectStore, tmp_path: Path) -> None:
    store.put("a/one", b"content")
    assert store.local_path("a/one", tmp_path).read_bytes() == b"content"


@pytest.mark.parametrize("path", ["nothing", "a", "a/nothing", "a/one/below"])
def test_what_is_not_there_is_missing(store: ObjectStore, tmp_path: Path, path: str) -> None:
    store.put("a/one", b"x")
    with pytest.raises(ObjectMissing, match=path):
        store.get(path)
    with pytest.raises(ObjectMissing, match=path):
        store.head(path)
    with pytest.raises(ObjectMissing, match=path):
        store.local_path(path, tmp_path)


def test_listing_goes_by_whole_path_segments(store: ObjectStore) -> None:
    for path in ("log/1/a", "log/1/b/c", "log/12/d", "other/e"):
        store.put(path, path.encode())
    assert paths(store) == {"log/1/a", "log/1/b/c", "log/12/d", "other/e"}
    assert paths(store, "log/1") == {"log/1/a", "log/1/b/c"}
    assert paths(store, "log") == {"log/1/a", "log/1/b/c", "log/12/d"}
    assert paths(store, "nothing") == set()
    (info,) = store.list("log/12")
    assert info == store.head("log/12/d")
    assert info.size_bytes == len("log/12/d")
    assert abs(datetime.now(UTC) - info.modified) < timedelta(hours=1)


def test_deleting_removes_one_object_and_may_be_repeated(store: ObjectStore) -> None:
    store.put("a/b/one", b"1")
    store.put("a/b/two", b"2")
    store.delete("a/b/one")
    store.delete("a/b/one")
    store.delete("a/never/was")
    assert paths(store) == {"a/b/two"}
    store.delete("a/b")
    assert paths(store) == {"a/b/two"}
    store.delete("a/b/two")
    store.put("a/b/one", b"again")
    assert content(store, "a/b/one") == b"again"


def test_many_objects_are_deleted_together(store: ObjectStore) -> None:
    for name in ("a/b/one", "a/two", "a/three"):
        store.put(name, b"1")
    store.delete_all(["a/b/one", "a/never/was", "a/three"])
    store.delete_all([])
    assert paths(store) == {"a/two"}


def test_a_buffer_outlives_its_object(store: ObjectStore) -> None:
    store.put("one", b"still here")
    buffer = store.get("one")
    store.delete("one")
    assert buffer.to_pybytes() == b"still here"


@pytest.mark.parametrize("path", ["", "/absolute", "a//b", "a/", "../up", "a/../b", ".hidden", "a/.b"])
def test_malformed_paths_are_refused(store: ObjectStore, path: str) -> None:
    with pytest.raises(ValueError, match="object path"):
        store.put(path, b"x")
    with pytest.raises(ValueError, match="object path"):
        store.get(path)


def test_a_store_travels_as_its_url_or_pickled(store: ObjectStore) -> None:
    store.put("one", b"x")
    assert content(open_store(store.url), "one") == b"x"
    assert content(pickle.loads(pickle.dumps(store)), "one") == b"x"

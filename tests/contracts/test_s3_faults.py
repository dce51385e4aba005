"""The S3 store with wrong keys, no bucket, no server, and answers that get lost. Secrets stay secret."""

from __future__ import annotations

import pickle
import re
import uuid
from collections.abc import Callable
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import GenericError

from elanus.core.errors import ElanusError, InvalidParameter, Unavailable
from elanus.devcluster.swift import Swift
from elanus.storage import s3
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectExists, ObjectMissing, ObjectStore

pytestmark = pytest.mark.services

CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "check": lambda store: store.check(),
    "put": lambda store: store.put("a", b"x"),
    "get": lambda store: store.get("a"),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete("a"),
    "delete all": lambda store: store.delete_all(["a", "b"]),
}


@pytest.fixture
def url(s3_server: Swift) -> str:
    return s3_server.store_url(uuid.uuid4().hex)


def secret_of(server: Swift) -> str:
    found = re.search("secret_access_key = (.+)", server.credentials.read_text())
    assert found is not None
    return found[1]


@pytest.mark.parametrize("call", CALLS)
def test_wrong_keys_are_refused_and_not_shown(url: str, s3_server: Swift, tmp_path: Path, call: str) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text(s3_server.credentials.read_text().replace(secret_of(s3_server), "a-guess"))
    store = open_store(url.replace(str(s3_server.credentials).replace("/", "%2F"), str(wrong)))
    with pytest.raises(InvalidParameter, match="refuses the credentials") as refusal:
        CALLS[call](store)
    assert "a-guess" not in str(refusal.value)


@pytest.mark.parametrize("call", ["check", "put", "get", "list"])
def test_a_bucket_that_is_not_there_is_named(url: str, call: str) -> None:
    with pytest.raises(InvalidParameter, match="no bucket 'elsewhere'"):
        CALLS[call](open_store(url.replace("s3://elanus/", "s3://elsewhere/")))


@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_is_away_is_unavailable(
    url: str, s3_server: Swift, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(s3, "_PATIENCE_S", 0.0)
    store = open_store(url.replace(s3_server.url.rpartition(":")[2], "9"))
    with pytest.raises(Unavailable, match="does not answer") as failure:
        CALLS[call](store)
    assert failure.value.retriable


def test_keys_come_from_the_environment_or_the_usual_file(
    s3_server: Swift, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://elanus/{uuid.uuid4().hex}?region=us-east-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(s3_server.credentials))
    open_store(url).put("one", b"x")
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "elanus:dev")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret_of(s3_server))
    assert open_store(url).get("one").to_pybytes() == b"x"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-guess")
    with pytest.raises(InvalidParameter, match="refuses the credentials"):
        open_store(url).get("one")


def test_no_secret_is_in_what_travels(url: str, s3_server: Swift) -> None:
    store = open_store(url)
    assert secret_of(s3_server).encode() not in pickle.dumps(store)
    assert secret_of(s3_server) not in store.url + repr(store)


def test_a_put_whose_answer_was_lost_is_done_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put, lost = obstore.put, []

    def forgetful(*arguments: object, **options: object) -> object:
        answer = put(*arguments, **options)  # type: ignore[arg-type]
        if not lost:
            lost.append(answer)
            raise GenericError("connection reset")
        return answer

    store = open_store(url)
    monkeypatch.setattr(obstore, "put", forgetful)
    store.put("one", pa.py_buffer(b"content"))
    assert store.get("one").to_pybytes() == b"content"
    lost.clear()
    with pytest.raises(ObjectExists, match="one"):
        store.put("one", b"other")
    assert store.get("one").to_pybytes() == b"content"


def test_a_large_file_whose_last_answer_was_lost_is_there(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library ends a large upload again, and the store does not know the upload any more."""
    put = obstore.put

    def forgetful(*arguments: object, **options: object) -> object:
        put(*arguments)  # type: ignore[arg-type]
        raise FileNotFoundError("NoSuchUpload")

    def failing(*arguments: object, **options: object) -> object:
        raise FileNotFoundError("NoSuchUpload")

    store, file = open_store(url), tmp_path / "file"
    monkeypatch.setattr(s3, "PART_BYTES", 4)
    monkeypatch.setattr(obstore, "put", forgetful)
    file.write_bytes(b"content")
    store.put_file("one", file)
    assert store.get("one").to_pybytes() == b"content"
    assert not file.exists()
    monkeypatch.setattr(obstore, "put", failing)
    file.write_bytes(b"content")
    with pytest.raises(Unavailable, match="other"):
        store.put_file("other", file)
    assert file.exists()


def test_errors_while_reading_are_reported_as_elsewhere(url: str) -> None:
    store = open_store(url)
    store.put("one", b"content")
    with store.open("one") as file:
        assert file.read(3) == b"con"
        store.delete("one")
        with pytest.raises(ObjectMissing, match="one"):
            file.read(3)


def test_a_listing_of_many_is_streamed_whole(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_LIST_CHUNK", 7)
    store = open_store(url)
    for number in range(20):
        store.put(f"a/{number}", b"")
    assert {info.path for info in store.list("a")} == {f"a/{number}" for number in range(20)}


@pytest.mark.parametrize(
    ("content", "name"), [("", "empty"), ("[default]\naws_access_key_id = x", "half"), ("secret!", "no form")]
)
def test_a_file_that_has_no_keys_is_refused_without_its_content(
    tmp_path: Path, content: str, name: str
) -> None:
    (tmp_path / "keys").write_text(content)
    with pytest.raises(InvalidParameter, match="keys cannot be used") as refusal:
        open_store(f"s3://bucket/?credentials={tmp_path / 'keys'}")
    assert "secret!" not in str(refusal.value), name


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///prefix", "s3://b:80/p", "s3://b/p?secret=x", "s3://me:pw@b/p"]
)
def test_what_is_no_such_url_is_refused(url: str) -> None:
    with pytest.raises(ElanusError, match="optionally with") as refusal:
        open_store(url)
    assert "pw" not in str(refusal.value)

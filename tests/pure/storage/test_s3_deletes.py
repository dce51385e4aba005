"""Many deletions on S3: a thousand a request, or one by one where a store has no such request.
And the failures that a store keeps."""

from __future__ import annotations

from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError

from elanus.core.errors import InvalidParameter, StoreAway
from elanus.storage import s3
from elanus.storage.port import ObjectMissing
from elanus.storage.s3 import S3Store

PATHS = [f"insert_log/{n}" for n in range(2500)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of `obstore.delete`."""
    asked: list[Any] = []
    monkeypatch.setattr(obstore, "delete", lambda _, paths: asked.append(paths))
    return asked


@pytest.fixture
def store() -> S3Store:
    return S3Store("s3://bucket/prefix?region=us-east-1&endpoint=http://127.0.0.1:9")


def test_a_request_deletes_a_thousand_objects(store: S3Store, asked: list[Any]) -> None:
    store.delete_all(PATHS)
    assert [len(paths) for paths in asked] == [1000, 1000, 500]
    assert [path for paths in asked for path in paths] == PATHS
    store.delete_all([])
    assert len(asked) == 3
    with pytest.raises(ValueError, match="object path"):
        store.delete_all(["a", "../b"])


@pytest.mark.parametrize("refusal", ["501 Not Implemented", "<Code>MethodNotAllowed</Code>"])
def test_a_store_without_such_requests_deletes_one_by_one(
    store: S3Store, asked: list[Any], monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    def one_by_one(_: object, paths: Any) -> None:
        if isinstance(paths, list):
            raise GenericError(refusal)
        asked.append(paths)

    monkeypatch.setattr(obstore, "delete", one_by_one)
    store.delete_all(PATHS[:50])
    assert sorted(asked) == sorted(PATHS[:50])


@pytest.mark.parametrize(
    ("answer", "error"), [("503 Slow Down", StoreAway), ("AccessDenied: no", InvalidParameter)]
)
def test_other_errors_are_raised(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, answer: str, error: type[Exception]
) -> None:
    def fails(_: object, paths: Any) -> None:
        raise GenericError(answer)

    monkeypatch.setattr(obstore, "delete", fails)
    monkeypatch.setattr(s3, "_PATIENCE_S", 0.0)
    with pytest.raises(error):
        store.delete_all(PATHS[:2])


def test_failures_are_kept_until_a_request_is_answered(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception] = []

    def head(_: object, path: str) -> None:
        raise answers.pop(0)

    monkeypatch.setattr(obstore, "head", head)
    assert store.failures() is None
    for answers[:] in ([GenericError("503 Slow Down")], [GenericError("AccessDenied: no")]):
        with pytest.raises((StoreAway, InvalidParameter)):
            store.head("a")
    failures = store.failures()
    assert failures is not None
    assert (failures.count, failures.first_s >= failures.last_s) == (2, True)
    assert "refuses the credentials" in failures.text
    answers.append(FileNotFoundError("404"))
    with pytest.raises(ObjectMissing):
        store.head("a")
    assert store.failures() is None, "that nothing is there is an answer"

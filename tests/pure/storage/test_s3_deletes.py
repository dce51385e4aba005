"""Many deletions on S3: a thousand a request, or one by one where a store has no such request."""

from __future__ import annotations

from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError

from elanus.core.errors import InvalidParameter, Unavailable
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
    ("answer", "error"), [("503 Slow Down", Unavailable), ("AccessDenied: no", InvalidParameter)]
)
def test_other_errors_are_raised(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, answer: str, error: type[Exception]
) -> None:
    def fails(_: object, paths: Any) -> None:
        raise GenericError(answer)

    monkeypatch.setattr(obstore, "delete", fails)
    with pytest.raises(error):
        store.delete_all(PATHS[:2])

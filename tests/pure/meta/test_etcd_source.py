"""The URL of a cluster's metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from elanus.core.errors import InvalidParameter
from elanus.meta.etcd_source import EtcdSource


def test_what_a_url_says() -> None:
    assert EtcdSource.parse("etcd://a") == EtcdSource(("a:2379",), "elanus")
    assert EtcdSource.parse("etcd://a:1,b/one/two") == EtcdSource(("a:1", "b:2379"), "one/two")
    encrypted = EtcdSource.parse("etcds://a/p?ca=/ca.pem&cert=/c.pem&key=/k.pem")
    assert encrypted == EtcdSource(("a:2379",), "p", True, Path("/ca.pem"), Path("/c.pem"), Path("/k.pem"))
    assert EtcdSource.parse("etcds://a").credentials() is not None
    assert EtcdSource.parse("etcd://a").credentials() is None


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "etcd://",
        "etcd://user@a",
        "etcd://a:99999",
        "etcd://a,b:",
        "etcd://a:x",
        "etcd://:2379",
        "etcd://a/p;q",
        "etcd://a?ca=/f",
        "etcds://a?cert=/f",
        "etcds://a?ca=",
        "etcds://a?password=x",
    ],
)
def test_what_is_no_url_of_one(url: str) -> None:
    with pytest.raises(InvalidParameter, match="expected a URL of the form etcd://"):
        EtcdSource.parse(url)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidParameter, match=r"/none\.pem cannot be read: No such file"):
        EtcdSource.parse("etcds://a?ca=/none.pem").credentials()

"""The guard, and how much of a request it looks at."""

from __future__ import annotations

import pytest

from elanus.core.access import Role, User, first_policy, with_role, with_user
from elanus.core.errors import CollectionNotFound, PermissionDenied
from elanus.core.privileges import COLLECTION, Grant
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AccessGuard
from elanus.proxy.access.permission import ObjectType

FLUSH = "PrivilegeFlush"


class Names:
    """The coordinator's names: the alias ``novels`` of ``books``. Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def real(self, database: str, name: str) -> str:
        self.asked.append(name)
        if name not in ("books", "novels", "secret"):
            raise CollectionNotFound(f"collection not found[collection={name}]")
        return "books" if name == "novels" else name


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def guard(names: Names) -> AccessGuard:
    policy = with_role(first_policy(), Role("flusher", (Grant(COLLECTION, "books", "default", "Flush"),)), 10)
    policy = with_user(policy, User("ada", "", 1, ("flusher",)), 10)
    return AccessGuard(lambda: policy, names.real)


def allow(guard: AccessGuard, *collections: str) -> None:
    guard.allow(Caller(user="ada"), FLUSH, ObjectType.COLLECTION, "default", collections)


def test_the_first_name_without_a_grant_ends_the_look(guard: AccessGuard, names: Names) -> None:
    """A caller without rights has no name looked up but one, however many it sends."""
    with pytest.raises(PermissionDenied, match="PrivilegeFlush: permission deny to ada in the `default`"):
        allow(guard, *(f"unknown_{n}" for n in range(1000)))
    assert names.asked == ["unknown_0"]


def test_a_name_that_is_sent_again_is_looked_up_once(guard: AccessGuard, names: Names) -> None:
    allow(guard, *("books", "novels") * 1000)
    assert names.asked == ["books", "novels"]


def test_all_names_take_the_grant(guard: AccessGuard) -> None:
    for sent in (("books", "secret"), ("secret", "books"), ("books", "unknown"), ()):
        with pytest.raises(PermissionDenied):
            allow(guard, *sent)

"""The sessions of the console without a server: how many there may be, and in what order they end."""

from __future__ import annotations

import pytest
from console_client import Clock

from elanus.console import sessions
from elanus.console.sessions import SESSION_S, Sessions
from elanus.core.access import User, first_policy, with_user
from elanus.core.errors import Unauthenticated
from elanus.proxy.access.sign_in import SignIn


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(clock: Clock) -> Sessions:
    policy = first_policy()
    return Sessions(SignIn(lambda: policy, "Milvus", lambda password, stored: password == stored), clock)


def test_ids_are_long_and_differ(made: Sessions) -> None:
    ids = {made.begin("root", "Milvus") for _ in range(20)}
    assert len(ids) == 20
    assert min(map(len, ids)) >= 43  # 256 bits
    assert {made.user_of(one) for one in ids} == {"root"}


def test_the_oldest_session_ends_when_there_are_too_many(
    made: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_SESSIONS_MAX", 3)
    ids = [made.begin("root", "Milvus") for _ in range(4)]
    with pytest.raises(Unauthenticated):
        made.user_of(ids[0])
    assert [made.user_of(one) for one in ids[1:]] == ["root"] * 3


def test_sessions_that_have_ended_are_forgotten(made: Sessions, clock: Clock) -> None:
    for _ in range(5):
        made.begin("root", "Milvus")
    clock.now_s += SESSION_S
    made.begin("root", "Milvus")
    assert len(made._sessions) == 1


def test_neither_ids_nor_passwords_are_kept(made: Sessions) -> None:
    session_id = made.begin("root", "Milvus")
    kept = repr(made._sessions)
    assert session_id not in kept
    assert "Milvus" not in kept


def test_nobody_ends_the_sessions_of_others_by_signing_in(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_OF_USER_MAX", 2)
    policy = with_user(first_policy(), User("ada", "secret1", 7), 10)
    made = Sessions(SignIn(lambda: policy, "Milvus", lambda password, stored: password == stored), clock)
    roots = made.begin("root", "Milvus")
    ids = [made.begin("ada", "secret1") for _ in range(9)]
    assert made.user_of(roots) == "root"
    assert [made.user_of(one) for one in ids[-2:]] == ["ada"] * 2
    for one in ids[:-2]:
        with pytest.raises(Unauthenticated):
            made.user_of(one)

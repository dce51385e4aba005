"""A token names a user if its password is right, and no longer than that."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import bcrypt
import pytest

from elanus.core.access import AccessPolicy, User, first_policy, with_user, without_user
from elanus.core.errors import Unauthenticated, Unavailable
from elanus.proxy.access import passwords
from elanus.proxy.access.passwords import hash_password, is_hash, is_outdated, verify_password
from elanus.proxy.access.sign_in import SignIn

ADA = User("ada", "hash of secret", 7)


class World:
    """A policy that tests change, and a count of verified passwords."""

    def __init__(self, *users: User) -> None:
        self.policy = first_policy()
        for user in users:
            self.policy = with_user(self.policy, user, 100)
        self.verified = 0
        self.rehashed: list[tuple[str, str]] = []
        self.sign_in = SignIn(lambda: self.policy, "Milvus", self.verify, self.rehash)

    def verify(self, password: str, stored: str) -> bool:
        self.verified += 1
        return stored.endswith(f"hash of {password}")

    def rehash(self, user: User, password: str) -> None:
        self.rehashed.append((user.name, password))

    def change(self, policy: AccessPolicy) -> None:
        self.policy = replace(policy, version=self.policy.version + 1)


def test_nobody_is_asked_when_authorization_is_off() -> None:
    sign_in = SignIn(None)
    assert (
        sign_in.identity_of("").user,
        sign_in.identity_of("x:y").user,
        sign_in.identity_of_header("§").user,
    ) == ("", "", "")
    assert not sign_in.is_required


def test_a_right_password_is_verified_once() -> None:
    world = World(ADA)
    assert [world.sign_in.identity_of("ada:secret").user for _ in range(3)] == ["ada"] * 3
    assert world.verified == 1


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("", "missing authorization in header"),
        ("ada:wrong", "auth check failure, please check username and password are correct"),
        ("eve:secret", "auth check failure, please check username and password are correct"),
        ("ada:", "auth check failure"),
        ("ada", "auth check failure, please check api key is correct"),
    ],
)
def test_another_token_is_refused(token: str, text: str) -> None:
    with pytest.raises(Unauthenticated, match=text):
        World(ADA).sign_in.identity_of(token)


def test_a_wrong_token_is_verified_once_until_users_change() -> None:
    world = World(ADA)
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            world.sign_in.identity_of("ada:other")
    assert world.verified == 1
    world.change(with_user(without_user(world.policy, "ada"), User("ada", "hash of other", 8), 100))
    assert world.sign_in.identity_of("ada:other").user == "ada"


def test_a_changed_password_ends_the_old_one() -> None:
    world = World(ADA)
    world.sign_in.identity_of("ada:secret")
    world.change(with_user(without_user(world.policy, "ada"), User("ada", "hash of new", 8), 100))
    with pytest.raises(Unauthenticated):
        world.sign_in.identity_of("ada:secret")
    assert world.sign_in.identity_of("ada:new").user == "ada"


def test_a_dropped_user_is_refused() -> None:
    world = World(ADA)
    world.sign_in.identity_of("ada:secret")
    world.change(without_user(world.policy, "ada"))
    with pytest.raises(Unauthenticated):
        world.sign_in.identity_of("ada:secret")


def test_root_has_the_initial_password_until_it_is_changed() -> None:
    world = World()
    assert world.sign_in.identity_of("root:Milvus").user == "root"
    changed = replace(world.policy.users["root"], password_hash="hash of better", generation=3)
    world.change(replace(world.policy, users={"root": changed}))
    with pytest.raises(Unauthenticated):
        world.sign_in.identity_of("root:Milvus")
    assert world.sign_in.identity_of("root:better").user == "root"


def test_root_without_an_initial_password_cannot_sign_in() -> None:
    with pytest.raises(Unauthenticated):
        SignIn(first_policy, "").identity_of("root:")


def test_grpc_clients_send_base64() -> None:
    world = World(ADA)
    assert world.sign_in.identity_of_header(base64.b64encode(b"ada:secret").decode()).user == "ada"
    for value in ("ada:secret", "////", "é"):
        with pytest.raises(Unauthenticated, match="invalid token format"):
            world.sign_in.identity_of_header(value)
    with pytest.raises(Unauthenticated, match="missing authorization"):
        world.sign_in.identity_of_header("")


def test_a_hash_of_an_old_kind_is_replaced_at_sign_in() -> None:
    world = World(User("bob", "$2b$hash of secret", 9))
    world.sign_in.identity_of("bob:secret")
    assert world.rehashed == [("bob", "secret")]


def test_a_hash_that_cannot_be_replaced_hinders_nobody() -> None:
    world = World(User("bob", "$2b$hash of secret", 9))

    def fail(user: User, password: str) -> None:
        raise Unavailable("rootcoord restarts")

    sign_in = SignIn(lambda: world.policy, "", world.verify, fail)
    assert sign_in.identity_of("bob:secret").user == "bob"


def test_passwords_are_hashed_with_salt_and_verified() -> None:
    first, second = hash_password("correct horse"), hash_password("correct horse")
    assert first != second
    assert first.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert verify_password("correct horse", first)
    assert not verify_password("battery staple", first)
    assert not verify_password("correct horse", "no hash")
    assert is_hash(first)
    assert not is_outdated(first)


def test_two_hashes_are_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, may_end = threading.Semaphore(0), threading.Event()

    class Slow:
        def hash(self, password: str) -> str:
            entered.release()
            assert may_end.wait(60)
            return "hash"

    monkeypatch.setattr(passwords, "_hasher", Slow)
    with ThreadPoolExecutor(5) as pool:
        hashes = [pool.submit(hash_password, "correct horse") for _ in range(5)]
        try:
            assert [entered.acquire(timeout=60) for _ in range(2)] == [True, True]
            assert not passwords._turns.acquire(blocking=False)
            assert not entered.acquire(blocking=False)
        finally:
            may_end.set()
        assert [one.result(60) for one in hashes] == ["hash"] * 5


def test_bcrypt_hashes_of_a_backup_are_read() -> None:
    stored = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    assert is_hash(stored)
    assert is_outdated(stored)
    assert verify_password("correct horse", stored)
    assert not verify_password("battery staple", stored)

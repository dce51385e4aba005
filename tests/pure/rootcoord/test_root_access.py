"""Users, roles and grants: persisted, and in force on every proxy when a change returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import FakeProxy
from root_bench import Bench, Root, refused, started

from elanus.core.access import AccessPolicy, PrivilegeGroup, Role, User
from elanus.core.api_keys import ApiKey
from elanus.core.errors import AccessConflict, InvalidParameter, NotPermitted, Unavailable
from elanus.core.ids import NodeID
from elanus.core.privileges import Grant
from elanus.meta.port import Delete, Put

INSERT = Grant("Collection", "books", "default", "Insert")


class Reader(FakeProxy):
    """A proxy as far as users are concerned. ``failing``: whether calls to it break off."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self.node_id = NodeID(node_id)
        self.forgotten = 0

    async def invalidate_access(self) -> None:
        await super().invalidate_access()
        self.forgotten += 1


async def test_what_is_defined_outlives_the_coordinator() -> None:
    bench, root = await started()
    await root.create_user("ada", "hash", "writes")
    await root.create_role("writer", "")
    await root.set_membership("ada", "writer", True)
    await root.set_grant("writer", INSERT, True, False)
    await root.create_privilege_group("filling")
    await root.change_privilege_group("filling", ("Insert", "Upsert"), True)
    before = await root.access_policy()
    assert before.users["ada"].roles == ("writer",)
    assert before.roles["writer"].grants == (INSERT,)
    assert before.version == 6
    after = await (await bench.restart()).access_policy()
    assert after == before
    assert sorted(after.users) == ["ada", "root"]
    assert sorted(after.roles) == ["admin", "public", "writer"]
    assert after.groups["filling"].privileges == ("Insert", "Upsert")


async def test_a_new_system_stores_nothing_about_users() -> None:
    bench, root = await started()
    assert (await root.access_policy()).users.keys() == {"root"}
    assert await bench.meta.list("rootcoord/access/") == []


async def test_a_change_returns_when_every_proxy_has_forgotten() -> None:
    bench, root = await started()
    other = Reader(2)
    bench.nodes.nodes[other.node_id] = other
    await root.create_user("ada", "hash", "")
    assert other.forgotten == 1
    assert len(bench.proxy.calls.of("invalidate_access")) == 1


async def test_a_revoke_waits_for_a_proxy_that_cannot_be_reached() -> None:
    bench, root = await started()
    other = Reader(2)
    bench.nodes.nodes[other.node_id] = other
    await root.create_role("writer", "")
    await root.set_grant("writer", INSERT, True, False)
    other.calls.failing["invalidate_access"] = Unavailable("the call was lost")
    revoking = asyncio.ensure_future(root.set_grant("writer", INSERT, False, False))
    await asyncio.sleep(5.0)
    assert not revoking.done()
    del other.calls.failing["invalidate_access"]
    await revoking
    assert other.forgotten == 3


async def test_a_proxy_that_stays_silent_is_named_and_one_that_is_gone_is_not() -> None:
    bench, root = await started()
    other = Reader(2)
    bench.nodes.nodes[other.node_id] = other
    other.calls.failing["invalidate_access"] = Unavailable("the call was lost")
    await refused(root.create_user("ada", "hash", ""), Unavailable, r"proxies \[2\] have not answered")
    assert "ada" in (await root.access_policy()).users
    dropping = asyncio.ensure_future(root.drop_user("ada"))
    await asyncio.sleep(2.0)
    assert not dropping.done()
    del bench.nodes.nodes[other.node_id]
    await dropping


async def test_a_change_that_is_cancelled_reaches_the_proxies_all_the_same() -> None:
    bench, root = await started()
    bench.proxy.calls.failing["invalidate_access"] = Unavailable("the call was lost")
    changing = asyncio.ensure_future(root.create_user("ada", "hash", ""))
    await asyncio.sleep(1.0)
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)
    del bench.proxy.calls.failing["invalidate_access"]
    await asyncio.sleep(2.0)
    assert "ada" in (await root.access_policy()).users
    noted = len(bench.proxy.calls.of("invalidate_access"))
    await asyncio.sleep(2.0)
    assert noted == len(bench.proxy.calls.of("invalidate_access")), "it is notified once"


async def test_a_second_try_waits_for_the_notifications_of_the_first() -> None:
    bench, root = await started()
    await root.create_role("writer", "")
    await root.set_grant("writer", INSERT, True, False)
    bench.proxy.calls.failing["invalidate_access"] = Unavailable("the call was lost")
    first = asyncio.ensure_future(root.set_grant("writer", INSERT, False, False))
    await asyncio.sleep(1.0)
    second = asyncio.ensure_future(root.set_grant("writer", INSERT, False, False))
    await asyncio.sleep(1.0)
    assert not second.done(), "it would say that nothing is granted any more"
    del bench.proxy.calls.failing["invalidate_access"]
    await asyncio.gather(first, second)


async def test_a_coordinator_that_was_replaced_answers_nothing() -> None:
    bench, root = await started()
    bench.lease.calls.failing["confirm"] = Unavailable("the lease is lost")
    await refused(root.access_policy(), Unavailable)


async def test_descriptions_are_replaced() -> None:
    _, root = await started()
    await root.create_user("ada", "hash", "first")
    await root.create_role("writer", "first")
    await root.describe_user("ada", "second")
    await root.describe_role("writer", "")
    policy = await root.access_policy()
    assert (policy.users["ada"].description, policy.roles["writer"].description) == ("second", "")
    assert policy.users["ada"].password_hash == "hash"
    await refused(root.describe_user("bob", "x"), AccessConflict, "bob")
    await refused(root.describe_role("reader", "x"), AccessConflict, "reader")


async def test_a_password_has_another_generation_each_time() -> None:
    _, root = await started()
    await root.create_user("ada", "first", "")
    generations = [(await root.access_policy()).users["ada"].generation]
    await root.set_password("ada", "second", generations[0])
    generations.append((await root.access_policy()).users["ada"].generation)
    await refused(root.set_password("ada", "third", generations[0]), AccessConflict, "changed meanwhile")
    await root.drop_user("ada")
    await root.create_user("ada", "first", "")
    generations.append((await root.access_policy()).users["ada"].generation)
    assert len(set(generations)) == 3


async def fill(root: Root) -> None:
    await root.create_user("ada", "hash", "")
    await root.create_role("writer", "")
    await root.set_grant("writer", INSERT, True, False)
    await root.create_privilege_group("filling")
    await root.change_privilege_group("filling", ("Insert",), True)
    await root.set_grant("writer", replace(INSERT, privilege="filling"), True, True)


async def test_a_backup_is_restored_as_a_whole() -> None:
    _, root = await started()
    await fill(root)
    saved = await root.access_policy()
    _, empty = await started()
    await empty.restore_access(saved)
    restored = await empty.access_policy()
    assert restored.roles == saved.roles
    assert restored.groups == saved.groups
    assert restored.users["ada"].password_hash == "hash"
    await empty.restore_access(saved)
    assert await empty.access_policy() == restored, "it is there already"
    await empty.change_privilege_group("filling", ("Upsert",), True)
    restored = await empty.access_policy()
    await refused(empty.restore_access(saved), InvalidParameter, "filling")
    eve = User("eve", "h", 0, ("nobody",))
    bad = AccessPolicy({"eve": eve}, {"r": Role("r")}, {"g": PrivilegeGroup("g")})
    await refused(empty.restore_access(bad), AccessConflict, "not found the role")
    assert await empty.access_policy() == restored


def many(users: int) -> AccessPolicy:
    """Users with the role crew and a key each."""
    members = [User(f"u{n}", "hash", 0, ("crew",)) for n in range(users)]
    keys = [ApiKey(f"k{n}", f"u{n}", "0" * 64, 1) for n in range(users)]
    return AccessPolicy(
        {user.name: user for user in members}, {"crew": Role("crew")}, keys={key.key_id: key for key in keys}
    )


async def test_a_large_backup_is_restored_and_outlives_the_coordinator() -> None:
    bench = Bench()
    root = await bench.start(users_max=200)
    await root.restore_access(many(100))
    before = await root.access_policy()
    assert (len(before.users), len(before.keys)) == (101, 100)
    assert await (await bench.restart()).access_policy() == before


async def test_a_large_restore_that_broke_off_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    root = await bench.start(users_max=300)
    txn, done = bench.meta.txn, 0

    async def breaks_off(operations: Sequence[Put | Delete], *more: Any) -> int:
        nonlocal done
        done += any("/access/" in operation.key for operation in operations)
        if done == 2:
            raise Unavailable("the store does not answer")
        return await txn(operations, *more)

    with monkeypatch.context() as patch:
        patch.setattr(bench.meta, "txn", breaks_off)
        await refused(root.restore_access(many(150)), Unavailable, "does not answer")
    part = await root.access_policy()
    assert "crew" in part.roles, "what others name is first"
    assert (len(part.users), len(part.keys)) == (100, 0)
    await root.restore_access(many(150))
    whole = await root.access_policy()
    assert (len(whole.users), len(whole.keys)) == (151, 150)


async def test_a_role_with_many_members_is_dropped() -> None:
    bench = Bench()
    root = await bench.start(users_max=300)
    await root.restore_access(many(150))
    await root.drop_role("crew", False)
    left = await root.access_policy()
    assert "crew" not in left.roles
    assert not any(user.roles for user in left.users.values())
    assert await (await bench.restart()).access_policy() == left


@pytest.mark.parametrize(
    ("attempt", "error", "text"),
    [
        (lambda r: r.create_user("ada", "h", ""), AccessConflict, "user already exists: ada"),
        (lambda r: r.drop_user("root"), NotPermitted, "root user cannot be deleted"),
        (lambda r: r.create_role("writer", ""), AccessConflict, 'role .name:"writer". already exists'),
        (
            lambda r: r.drop_role("writer", False),
            AccessConflict,
            "role that it has privileges",
        ),
        (lambda r: r.drop_role("reader", False), AccessConflict, "not found the role, maybe the role"),
        (lambda r: r.drop_role("admin", True), NotPermitted, "is a default role, which can't be dropped"),
        (lambda r: r.set_membership("eve", "writer", True), AccessConflict, "not found the user, maybe"),
        (lambda r: r.set_membership("ada", "reader", True), AccessConflict, "not found the role, maybe"),
        (lambda r: r.set_membership("ada", "reader", False), AccessConflict, "not found the role, maybe"),
        (lambda r: r.set_grant("reader", INSERT, True, False), AccessConflict, "not found the role"),
        (lambda r: r.create_privilege_group("filling"), InvalidParameter, r"\[filling\] is defined by users"),
        (lambda r: r.create_privilege_group("Insert"), InvalidParameter, "built in privileges"),
        (lambda r: r.create_privilege_group("ClusterAdmin"), InvalidParameter, "built in privileges"),
        (lambda r: r.drop_privilege_group("filling"), AccessConflict, r"used by role \[writer\]"),
        (
            lambda r: r.change_privilege_group("other", ("Insert",), True),
            InvalidParameter,
            r"there is no privilege group name \[other\] defined in system",
        ),
        (
            lambda r: r.change_privilege_group("filling", ("Fly",), True),
            InvalidParameter,
            r"there is no privilege name or privilege group name \[Fly\] defined",
        ),
        (
            lambda r: r.change_privilege_group("filling", ("CreateDatabase",), True),
            InvalidParameter,
            "must be of one level",
        ),
    ],
)
async def test_a_change_that_is_refused_changes_nothing(attempt, error, text) -> None:  # type: ignore[no-untyped-def]
    _, root = await started()
    await fill(root)
    before = await root.access_policy()
    await refused(attempt(root), error, text)
    assert await root.access_policy() == before


async def test_dropping_twice_and_leaving_a_role_twice_succeed() -> None:
    _, root = await started()
    await fill(root)
    for _ in range(2):
        await root.set_membership("ada", "writer", False)
        await root.drop_user("ada")
    await root.drop_role("writer", True)
    for _ in range(2):
        await root.drop_privilege_group("filling")
    assert (await root.access_policy()).users.keys() == {"root"}


async def test_users_and_roles_are_limited() -> None:
    bench = Bench()
    root = await bench.start(users_max=2, roles_max=3)
    await root.create_user("ada", "h", "")
    await refused(root.create_user("bob", "h", ""), AccessConflict, "number of users has reached the limit")
    await root.create_role("writer", "")
    await refused(root.create_role("reader", ""), AccessConflict, "number of roles has reached the limit")


async def test_api_keys_outlive_the_coordinator_and_end_on_every_proxy() -> None:
    bench, root = await started()
    await root.create_user("ada", "hash", "")
    key = ApiKey("7", "ada", "digest", 1_000, 2_000, "ingest")
    await root.create_api_key(key)
    root = await bench.restart()
    assert (await root.access_policy()).keys == {"7": key}
    other = Reader(2)
    bench.nodes.nodes[other.node_id] = other
    await root.drop_api_key("ada", "7")
    assert other.forgotten == 1
    assert (await (await bench.restart()).access_policy()).keys == {}


async def test_the_keys_of_a_dropped_user_leave_the_metadata() -> None:
    bench, root = await started()
    await root.create_user("ada", "hash", "")
    await root.create_api_key(ApiKey("7", "ada", "digest", 1_000))
    await root.drop_user("ada")
    assert await bench.meta.list("rootcoord/access/key/") == []

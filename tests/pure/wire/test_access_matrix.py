"""The access matrix: every way into a server x every kind of caller. Nobody does what was not granted.

The ways are generated from the registries (`access_ways`), so one that is added later is in the matrix.
docs/access-matrix.md shows it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from access_ways import (
    ADA,
    BY_ID,
    METHODS,
    NOTHING,
    PERMISSIONS,
    Asked,
    Context,
    Ended,
    Way,
    World,
    all_ways,
    token_of_key,
)
from google.protobuf import message_factory

from elanus.core.access import first_policy
from elanus.core.errors import PermissionDenied, Unauthenticated
from elanus.core.key_rights import IN_DATABASE
from elanus.core.privileges import ANY, PREFIX, PUBLIC, Grant, object_type_of
from elanus.proxy.access.caller import Caller, FinishedCall
from elanus.proxy.access.permission import ObjectType
from elanus.proxy.rest.table import PREFIX as PATHS
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.requests import is_rpc, understood_fields
from elanus.proxy.wire.stubs import SERVICE

WAYS = list(all_ways())
PUBLIC_HOLDS = {f"{PREFIX}DescribeCollection", f"{PREFIX}ListAliases", f"{PREFIX}IndexDetail"}
Need = FinishedCall


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def enter(world: World, way: Way, asked: Asked) -> None:
    world.passed.clear()
    world.recorded.clear()
    way.send(world, asked)


def needs_of(world: World, way: Way) -> dict[str, Need]:
    """The operations that the way calls for an administrator, one for each privilege."""
    world.grant(roles=("admin",))
    enter(world, way, Asked())
    assert not any(call.refused for call in world.recorded)
    if way.declared is not None:
        assert set(world.passed) == set(way.declared), "an endpoint declares the operations that it calls"
    return {name: call for call in reversed(world.recorded) if (name := call.permission.privilege)}


def granted(need: Need, name: str = ANY, database: str = "") -> Grant:
    privilege = need.permission.privilege.removeprefix(PREFIX)
    return Grant(object_type_of(privilege), name, database or need.database, privilege)


def is_refused(world: World, way: Way, need: Need, asked: Asked, *grants: Grant) -> bool:
    """Whether the guard refuses, and at an operation of that privilege."""
    world.grant(*grants)
    enter(world, way, asked)
    refused = [call for call in world.recorded if call.refused]
    assert all(call.permission.privilege == need.permission.privilege for call in refused)
    assert not {call.operation for call in refused} & set(world.passed)
    assert world.status in (0, 403) or not refused or way.door != "REST"
    return bool(refused)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_who_may_enter(world: World, way: Way) -> None:
    needs = needs_of(world, way)
    enter(world, way, Asked(signed_in=False))
    assert not world.passed, "nobody comes in without signing in"
    for privilege, need in needs.items():
        others = [granted(other) for other in needs.values() if other.permission.privilege != privilege]
        right = granted(need)
        assert is_refused(world, way, need, Asked(), *others), "no grant"
        assert not is_refused(world, way, need, Asked(), *others, right), "the right grant"
        assert way.declared is None or set(world.passed) == set(way.declared)
        if need.objects:
            assert not is_refused(world, way, need, Asked(), *others, granted(need, "books"))
            assert is_refused(world, way, need, Asked(), *others, granted(need, "films")), (
                "another collection"
            )
        if need.database == ANY:
            assert is_refused(world, way, need, Asked(), *others, granted(need, database="default"))
            continue
        elsewhere = granted(need, database="shop")
        assert is_refused(world, way, need, Asked(), *others, elsewhere), "another database"
        in_shop = [granted(other, database="shop") for other in needs.values()]
        if way.has_database:  # the request's database counts, whatever the connection's is
            there = Asked(database="shop")
            assert not is_refused(world, way, need, there, *in_shop)
            assert is_refused(world, way, need, there, *in_shop_but(in_shop, elsewhere), right)
            assert is_refused(
                world,
                way,
                need,
                Asked(database="shop", connection="default"),
                *in_shop_but(in_shop, elsewhere),
                right,
            )
        elif way.has_connection:
            assert not is_refused(world, way, need, Asked(connection="shop"), *in_shop)
        if has_alias(way, need):
            shelf = Asked("shelf")
            assert not is_refused(world, way, need, shelf, *others, granted(need, "books")), "an alias"
            assert is_refused(world, way, need, shelf, *others, granted(need, "shelf")), "a grant on an alias"


@pytest.mark.parametrize("way", [way for way in WAYS if way.door != "console"], ids=str)
def test_who_may_enter_by_a_limited_key(world: World, way: Way) -> None:
    """The console knows no keys. A key's limits take from the rights of its user, whatever these are."""
    needs = needs_of(world, way)
    rights = [granted(need) for need in needs.values()]
    in_database = all(name.removeprefix(PREFIX) in IN_DATABASE for name in needs)
    for need in needs.values():

        def refused(key: str, *grants: Grant, need: Need = need, **asked: str) -> bool:
            return is_refused(world, way, need, Asked(token=token_of_key(key), **asked), *grants)

        if len(needs) == 1:  # else another one of the way's operations may be the first that is refused
            assert refused("other", *rights), "limited to a role without the grant"
            assert refused("shop", *rights), "limited to another database"
            assert refused("default", *rights) != (in_database and need.database == "default")
        assert not refused("clerk", *rights), "limited to the role with the grant"
        if in_database and way.has_database and need.database != ANY:
            in_shop = [granted(other, database="shop") for other in needs.values()]
            assert not refused("shop", *in_shop, database="shop")


def in_shop_but(grants: list[Grant], one: Grant) -> list[Grant]:
    return [grant for grant in grants if grant != one]


def has_alias(way: Way, need: Need) -> bool:
    about_roles = need.permission.privilege == "PrivilegeSelectOwnership"
    return (
        way.names
        and bool(need.objects)
        and need.permission.object_type != ObjectType.USER
        and not about_roles
    )


def test_a_request_that_names_a_collection_is_decided_by_it(world: World) -> None:
    """Not by a right to all collections: an endpoint must pass the name on."""
    forgotten = []
    for way in WAYS:
        needs_of(world, way)
        for call in world.recorded:
            permission = PERMISSIONS.get(call.operation)
            if way.names and permission is not None and permission.object_field and not call.objects:
                forgotten.append((str(way), call.operation))
    assert forgotten == []


def test_a_pin_is_released_by_who_has_the_right_to_its_collection(world: World) -> None:
    """The ids of pins follow each other: any user can guess those of others."""
    name = "UnpinSnapshotData"
    request_type = message_factory.GetMessageClass(METHODS[name].input_type)
    right = Grant(object_type_of(name), ANY, "default", name)
    world.grant(right)
    world.calls.answer(name, request_type(pin_id=1), Caller(user=ADA))
    with pytest.raises(PermissionDenied, match="in the `shop` database"):
        world.calls.answer(name, request_type(pin_id=3), Caller(user=ADA))
    world.calls.answer(name, request_type(pin_id=99), Caller(user=ADA))  # it has ended: this does nothing
    with pytest.raises(PermissionDenied, match="in the `shop` database"):
        world.calls.answer(name, request_type(pin_id=99), Caller(user=ADA, database="shop"))


def test_ids_of_no_collection_and_of_several_databases_take_the_right_everywhere(world: World) -> None:
    request_type = message_factory.GetMessageClass(METHODS["BatchDescribeCollection"].input_type)
    everywhere = Grant(object_type_of("DescribeCollection"), ANY, ANY, "DescribeCollection")
    for ids, there in (((1, 2), "default"), ((1, 3), ANY), ((4,), ANY)):
        for database in ("default", "shop", ANY):
            world.grant(replace(everywhere, database=database))
            request = request_type(collectionID=ids)
            try:
                world.calls.answer("BatchDescribeCollection", request, Caller(user=ADA))
            except PermissionDenied:
                assert database not in (there, ANY)
            else:
                assert database in (there, ANY)


def test_every_rpc_that_takes_the_id_of_a_collection_is_in_the_matrix() -> None:
    found = {
        name
        for family in milvus_families(NOTHING, "STANDALONE")
        for name, method in inspect.getmembers(type(family), is_rpc)
        if "collectionID" in (understood_fields(method) or ())
    }
    assert found == set(BY_ID)


def test_the_compactions_of_a_named_collection_take_a_right_to_it_and_one_that_is_known_none(
    world: World,
) -> None:
    name = "GetCompactionStateWithPlans"
    request_type = message_factory.GetMessageClass(METHODS[name].input_type)
    world.grant()
    world.calls.answer(name, request_type(compactionID=7), Caller(user=ADA))
    with pytest.raises(PermissionDenied):
        world.calls.answer(name, request_type(collection_name="books"), Caller(user=ADA))


def test_the_matrix_has_every_rpc_that_can_answer_and_every_door() -> None:
    rpcs = {way.path for way in WAYS if way.door == "gRPC"}
    assert len(SERVICE.methods) - len(rpcs) < 5
    assert {way.door for way in WAYS} == {"gRPC", "REST", "console", "Spark and elanus"}


def test_the_page_has_every_way() -> None:
    page = (Path(__file__).parents[3] / "docs" / "access-matrix.md").read_text()
    for way in WAYS:
        if way.path.startswith("/v1/"):
            continue  # the same endpoints as of the second generation
        path = way.path.removeprefix(PATHS).removeprefix("/ui/api/call/")
        assert f"`{path}`" in page, way


@pytest.mark.parametrize(
    ("rpc", "privilege", "fields"),
    [
        ("RenameCollection", "RenameCollection", {"oldName": "books", "newDBName": "shop"}),
        ("RestoreSnapshot", "RestoreSnapshot", {"collection_name": "books", "target_db_name": "shop"}),
    ],
)
def test_a_collection_comes_into_another_database_with_a_right_there(
    world: World, rpc: str, privilege: str, fields: dict[str, str]
) -> None:
    request = message_factory.GetMessageClass(METHODS[rpc].input_type)(**fields)
    here = Grant(object_type_of(privilege), ANY, "default", privilege)
    create = Grant(object_type_of("CreateCollection"), ANY, "default", "CreateCollection")
    for grants in ((here,), (here, create)):
        world.grant(*grants)
        world.passed.clear()
        with pytest.raises(PermissionDenied):
            world.calls.answer(rpc, request, Caller(user=ADA))
        assert rpc not in world.passed
    world.grant(here, replace(create, database="shop"))
    world.calls.answer(rpc, request, Caller(user=ADA))
    assert rpc in world.passed


@pytest.mark.parametrize("role", ["nobody", PUBLIC, "admin", "root"])
def test_what_users_may_do_without_a_grant(world: World, role: str) -> None:
    """A user without roles may do what needs no privilege; the role public adds a few; two may do all."""
    world.grant(roles=("admin",) if role == "admin" else ())
    if role == PUBLIC:
        world.policy = replace(world.policy, roles=first_policy().roles)
    for name, permission in PERMISSIONS.items():
        if name not in world.calls or permission.if_named:
            continue
        held = role in ("admin", "root") or (role == PUBLIC and permission.privilege in PUBLIC_HOLDS)
        world.passed.clear()
        request = message_factory.GetMessageClass(METHODS[name].input_type)()
        try:
            world.calls.answer(name, request, Caller(user="root" if role == "root" else ADA))
        except PermissionDenied as error:
            assert "permission deny to ada in the `" in error.message  # noqa: PT017 - the text clients look for
        assert (name in world.passed) == (held or not permission.privilege), name


@pytest.mark.parametrize("token", ["", "ada:wrong", "eve:hash", "elk_1_secret"])
def test_no_rpc_answers_who_does_not_sign_in(world: World, token: str) -> None:
    """Not even those that no matrix has, because their answers cannot report an error."""
    for rpc, method in METHODS.items():
        handler = world.rpcs.service(SimpleNamespace(method=f"/{SERVICE.full_name}/{rpc}"))
        request = message_factory.GetMessageClass(method.input_type)()
        stream = handler.unary_stream
        answer = (
            handler.stream_stream or handler.unary_unary or (lambda r, c, stream=stream: list(stream(r, c)))
        )
        with pytest.raises(Ended) as ended:
            answer(request, Context(Asked(signed_in=bool(token)), token))
        assert ended.value.args[0] is grpc.StatusCode.UNAUTHENTICATED
        assert world.recorded[-1].operation == rpc
        assert world.recorded[-1].refused


def test_a_dropped_user_is_refused_in_the_middle_of_a_connection(world: World) -> None:
    users = {name: user for name, user in world.policy.users.items() if name != ADA}
    world.policy = replace(world.policy, users=users)
    request = message_factory.GetMessageClass(METHODS["GetVersion"].input_type)()
    with pytest.raises(Unauthenticated, match="there is no user ada any more"):
        world.calls.answer("GetVersion", request, Caller(user=ADA))

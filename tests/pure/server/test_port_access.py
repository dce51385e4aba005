"""Which ports may be open to everybody, and who guards those that are not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elanus.core.access import Role, User, first_policy, with_role, with_user
from elanus.core.errors import PermissionDenied, Unauthenticated
from elanus.core.privileges import Grant
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.access.permission import ObjectType
from elanus.server.access import check_openness, port_access
from elanus.server.pipeline_role import pipeline_order
from elanus.server.settings import ProxySettings, Settings
from elanus.server.startup import CannotStart


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_on_loopback_nobody_needs_to_sign_in(host: str) -> None:
    settings = ProxySettings(host=host)
    check_openness(settings)
    assert settings.initial_root_password == "Milvus"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "db.example"])
def test_elsewhere_it_must_be_asked_for(host: str) -> None:
    with pytest.raises(CannotStart, match=r"proxy\.authorization_enabled=true .* or proxy\.open_to_all=true"):
        check_openness(ProxySettings(host=host))
    check_openness(ProxySettings(host=host, authorization_enabled=True))
    check_openness(ProxySettings(host=host, open_to_all=True))


def test_elsewhere_root_has_no_password_that_everybody_knows() -> None:
    assert ProxySettings(host="0.0.0.0").initial_root_password == ""
    assert (
        ProxySettings(host="0.0.0.0", root_password="correct horse").initial_root_password == "correct horse"
    )
    assert ProxySettings(host="0.0.0.0", root_password="Milvus").initial_root_password == "Milvus"


def test_the_pipeline_process_does_not_get_the_password(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, proxy=ProxySettings(root_password="correct horse"))
    order = pipeline_order(settings, tmp_path)
    assert pickle.loads(pickle.dumps(order)) == order
    assert b"correct horse" not in pickle.dumps(order)
    assert "correct horse" not in repr(settings)


def test_without_authorization_everybody_may_do_everything() -> None:
    access = port_access(ProxySettings(), lambda: None)  # type: ignore[arg-type,return-value]
    assert isinstance(access.guard, AllowAll)
    assert access.sign_in.identity_of("").user == ""
    assert (
        access.visible.databases(Caller(), ["a"]) == ["a"] == access.visible.collections(Caller(), "", ["a"])
    )


def test_with_authorization_the_proxys_policy_decides() -> None:
    policy = with_role(first_policy(), Role("clerk", (Grant("Collection", "books", "default", "Insert"),)), 9)
    policy = with_user(policy, User("ada", "", 1, ("clerk",)), 9)

    def collection(database: str, name: str) -> Any:
        return SimpleNamespace(view=SimpleNamespace(name={"shelf": "books"}.get(name, name)))

    proxy = SimpleNamespace(policies=SimpleNamespace(current=lambda: policy), collection=collection)
    current: Callable[[], Any] = lambda: proxy  # noqa: E731 - as a server passes it
    access = port_access(ProxySettings(authorization_enabled=True), current)
    assert access.sign_in.identity_of("root:Milvus").user == "root"
    with pytest.raises(Unauthenticated):
        access.sign_in.identity_of("ada:")
    ada = Caller(user="ada")
    access.guard.allow(ada, "PrivilegeInsert", ObjectType.COLLECTION, "default", ("shelf",))
    with pytest.raises(PermissionDenied, match="PrivilegeInsert: permission deny to ada"):
        access.guard.allow(ada, "PrivilegeInsert", ObjectType.COLLECTION, "default", ("films",))
    assert access.visible.collections(ada, "default", ["books", "films"]) == ["books"]
    assert access.visible.databases(ada, ["default", "shop"]) == ["default"]

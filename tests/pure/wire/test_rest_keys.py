"""API keys by HTTP: created, used within their limits, listed without the key, dropped."""

from __future__ import annotations

import json

from fake_verbs import FakeVerbs
from rest_client import RestClient, rest_front

from elanus.proxy.access.guard import AccessGuard
from elanus.proxy.access.sign_in import SignIn

ROOT = {"authorization": "Bearer root:Milvus"}


def server(verbs: FakeVerbs) -> RestClient:
    sign_in = SignIn(
        verbs.access_policy, "Milvus", lambda password, stored: password == stored, now_s=lambda: 1.0
    )
    return RestClient(
        rest_front(verbs, AccessGuard(verbs.access_policy, lambda _, name: name), sign_in=sign_in)
    )


def test_a_key_is_created_used_listed_and_dropped() -> None:
    client = server(FakeVerbs())
    client.data("users/create", ROOT, userName="ada", password="secret1")
    client.data("roles/create", ROOT, roleName="admin2")
    client.data("users/grant_role", ROOT, userName="ada", roleName="admin2")
    client.data(
        "roles/grant_privilege_v2",
        ROOT,
        roleName="admin2",
        privilege="ClusterAdmin",
        dbName="*",
        collectionName="*",
    )
    ada = {"authorization": "Bearer ada:secret1"}
    made = client.data(
        "api_keys/create", ada, userName="ada", validDays=2, description="night", dbNames=["shop"]
    )
    key = {"authorization": f"Bearer {made['key']}"}
    assert client.post("users/list", ada)["code"] == 0
    assert client.post("collections/list", key)["code"] == 0
    assert client.post("users/list", key)["code"] == 65535
    assert client.status == 403
    listed = client.data("api_keys/list", ROOT)
    assert listed == [{name: value for name, value in made.items() if name != "key"}]
    assert (listed[0]["dbNames"], listed[0]["roleNames"], listed[0]["userName"]) == (["shop"], [], "ada")
    assert listed[0]["expiresMs"] - listed[0]["createdMs"] == 2 * 24 * 3600 * 1000
    assert "secret" not in json.dumps(listed)
    client.data("api_keys/drop", ROOT, userName="ada", keyId=made["keyId"])
    assert client.post("collections/list", key)["code"] == 1800
    assert client.data("api_keys/list", ROOT, userName="ada") == []


def test_a_bad_request_is_refused_by_name() -> None:
    client = server(FakeVerbs())
    answer = client.post("api_keys/create", ROOT, userName="root", roleNames=["nobody"])
    assert (answer["code"], "not found the role" in answer["message"]) == (65535, True)
    assert client.post("api_keys/create", ROOT, userName="root", validDays=9999)["code"] == 1100
    assert client.post("api_keys/create", ROOT, userName="root", roles=["x"])["code"] != 0
    assert client.post("api_keys/drop", ROOT, userName="root", keyId="7")["code"] == 65535

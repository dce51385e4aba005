"""The console on its port: sign-in, cookies, the guard, and what its answers allow browsers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console_client import BODY_MAX_BYTES, Browser, Clock, FakeSource, World, books, served
from fake_verbs import FakeVerbs

from elanus.console.app import HEADERS, REQUEST_HEADER
from elanus.console.sessions import SESSION_S
from elanus.console.status import KEPT_S, STATUS, StatusOperation
from elanus.core.errors import PermissionDenied
from elanus.core.privileges import ANY, Grant, object_type_of
from elanus.proxy.access.caller import Caller
from elanus.server import status as server_status

STATUS_PATH = "/ui/api/status"


@pytest.fixture
def world(verbs: FakeVerbs) -> Iterator[World]:
    """A server with users: root, and ada, who has no roles."""
    verbs.create_user("ada", "secret-ada", "")
    books(verbs)
    with served(verbs, users=True) as made:
        yield made


@pytest.fixture
def browser(world: World) -> Browser:
    return world.browser


@pytest.fixture
def open_world(verbs: FakeVerbs) -> Iterator[World]:
    """A server without users."""
    books(verbs)
    with served(verbs, users=False) as made:
        yield made


def granted(verbs: FakeVerbs, privilege: str, database: str, name: str) -> None:
    verbs.create_role("reader", "")
    verbs.set_membership("ada", "reader", True)
    kind = object_type_of(privilege)
    verbs.set_grant("reader", Grant(kind, name, database, privilege), True, False)


def test_a_session_begins_with_a_password_and_ends_with_the_sign_out(browser: Browser) -> None:
    assert browser.ask("GET", "/ui/api/session")[0] == 401
    status, facts = browser.ask("POST", "/ui/api/session", {"user": "root", "password": "Milvus"})
    assert (status, facts["user"], facts["signInNeeded"]) == (200, "root", True)
    session_id = browser.cookie
    assert browser.ask("GET", "/ui/api/session")[1]["user"] == "root"
    assert browser.ask("DELETE", "/ui/api/session")[0] == 200
    assert browser.cookie == ""
    browser.cookie = session_id
    assert browser.ask("GET", "/ui/api/session")[0] == 401


def test_the_cookie_is_for_the_console_alone(browser: Browser) -> None:
    browser.sign_in("root", "Milvus")
    attributes = {part.strip() for part in browser.headers["set-cookie"].split(";")[1:]}
    assert attributes == {"HttpOnly", "SameSite=strict", "Path=/ui", f"Max-Age={SESSION_S}"}


def test_a_wrong_password_gives_no_cookie_and_is_recorded(world: World) -> None:
    assert world.browser.sign_in("root", "wrong") == 401
    assert "set-cookie" not in world.browser.headers
    assert [name for name, code in world.recorded if code] == ["Console.SignIn"]


@pytest.mark.parametrize("session_id", ["", "guess", "x" * 4000])
def test_an_id_that_was_not_issued_opens_nothing(browser: Browser, session_id: str) -> None:
    browser.cookie = session_id
    assert browser.ask("GET", STATUS_PATH)[0] == 401
    assert browser.call("collections/list") == (401, 1800)


def test_a_session_ends_by_time_by_another_password_and_with_its_user(world: World) -> None:
    browser = world.browser
    browser.sign_in("ada", "secret-ada")
    world.clock.now_s += SESSION_S - 1
    assert browser.ask("GET", "/ui/api/session")[0] == 200
    world.clock.now_s += 1
    assert browser.ask("GET", "/ui/api/session")[0] == 401
    browser.sign_in("ada", "secret-ada")
    world.verbs.change_password("ada", "secret-ada", "another-one", "")
    assert browser.ask("GET", "/ui/api/session")[0] == 401
    browser.sign_in("ada", "another-one")
    world.verbs.drop_user("ada")
    assert browser.ask("GET", "/ui/api/session")[0] == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/ui/api/session"),
        ("DELETE", "/ui/api/session"),
        ("POST", "/ui/api/call/collections/drop"),
        ("POST", "/ui/api/view/segments"),
    ],
)
def test_what_is_no_get_needs_the_header(browser: Browser, method: str, path: str) -> None:
    browser.sign_in("root", "Milvus")
    browser.sent = {}
    status, answer = browser.ask(method, path, {"collectionName": "books"})
    assert status == 403
    assert REQUEST_HEADER in answer["message"]
    browser.sent = {REQUEST_HEADER: "test"}
    assert browser.call("collections/list") == (200, ["books"])


def test_the_header_is_the_one_of_the_metrics_port() -> None:
    assert REQUEST_HEADER == server_status.REQUEST_HEADER


@pytest.mark.parametrize("path", ["/ui/", "/ui/main.js", "/ui/api/session", STATUS_PATH])
def test_pages_of_other_origins_and_other_names_get_nothing(browser: Browser, path: str) -> None:
    browser.sign_in("root", "Milvus")
    assert browser.ask("GET", path, Origin="http://evil.example")[0] == 403
    assert browser.ask("GET", path, Host="evil.example")[0] == 403


def test_the_address_that_a_server_prints_leads_to_the_page(browser: Browser) -> None:
    assert browser.ask("GET", "/")[0] == 307
    assert browser.headers["location"] == "/ui/"


@pytest.mark.parametrize(
    "path", ["/", "/ui", "/ui/", "/ui/main.js", "/ui/none", "/ui/api/session", STATUS_PATH]
)
def test_every_answer_has_the_policy(browser: Browser, path: str) -> None:
    browser.ask("GET", path)
    assert {name: browser.headers[name.lower()] for name in HEADERS} == HEADERS
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'self';")


def test_answers_with_data_are_not_kept_by_browsers(browser: Browser) -> None:
    browser.sign_in("root", "Milvus")
    browser.ask("GET", STATUS_PATH)
    assert browser.headers["cache-control"] == "no-store"


def test_a_user_without_grants_sees_no_names(browser: Browser) -> None:
    browser.sign_in("ada", "secret-ada")
    assert browser.call("databases/list") == (200, [])
    assert browser.call("collections/list") == (200, [])
    assert browser.ask("GET", STATUS_PATH)[0] == 403
    assert browser.call("entities/query", collectionName="books", filter="")[0] == 403
    assert browser.ask("POST", "/ui/api/view/segments", {"collectionName": "books"})[0] == 403
    assert browser.call("users/list")[0] == 403


@pytest.mark.parametrize(
    ("database", "name", "expected"),
    [("default", "books", 403), ("default", ANY, 403), (ANY, "books", 403), (ANY, ANY, 200)],
)
def test_the_status_takes_the_right_to_all_statistics(
    world: World, database: str, name: str, expected: int
) -> None:
    granted(world.verbs, "GetStatistics", database, name)
    world.browser.sign_in("ada", "secret-ada")
    assert world.browser.ask("GET", STATUS_PATH)[0] == expected
    assert world.recorded[-1] == (STATUS, 0 if expected == 200 else PermissionDenied.code)


def test_a_grant_opens_what_it_names(world: World) -> None:
    granted(world.verbs, "GetStatistics", "default", "books")
    world.browser.sign_in("ada", "secret-ada")
    status, answer = world.browser.ask("POST", "/ui/api/view/segments", {"collectionName": "books"})
    assert status == 200
    assert [segment[0] for segment in answer["data"]] == ["7", "9"]
    assert world.browser.call("collections/drop", collectionName="books")[0] == 403


def test_users_roles_and_grants_come_in_one_answer(world: World) -> None:
    granted(world.verbs, "GetStatistics", "default", "books")
    world.browser.sign_in("root", "Milvus")
    status, answer = world.browser.ask("POST", "/ui/api/view/users")
    assert status == 200
    found = answer["data"]
    held = {user["name"]: user["roles"] for user in found["users"]}
    assert set(held) == {"ada", "root"}
    (role,) = (grant[0] for grant in found["grants"] if grant[3:] == ["default", "books"])
    assert role in held["ada"]
    assert role in found["roles"]
    world.browser.sign_in("ada", "secret-ada")
    assert world.browser.ask("POST", "/ui/api/view/users")[0] == 403


def test_changes_are_made_as_the_user_of_the_session(world: World) -> None:
    world.browser.sign_in("root", "Milvus")
    assert world.browser.call("users/create", userName="eve", password="secret-eve") == (200, {})
    assert "eve" in world.verbs.policy.users
    assert ("CreateCredential", 0) in world.recorded


def test_a_server_without_users_asks_nobody(open_world: World) -> None:
    browser = open_world.browser
    facts = browser.ask("GET", "/ui/api/session")[1]
    assert (facts["user"], facts["signInNeeded"]) == ("", False)
    assert browser.sign_in("anybody", "") == 200
    assert browser.cookie == ""
    assert browser.call("collections/list") == (200, ["books"])
    assert browser.ask("GET", STATUS_PATH)[1]["data"]["status"]["version"] == "9.9"


def test_many_pages_ask_for_the_status_once(open_world: World) -> None:
    taken = [open_world.browser.ask("GET", STATUS_PATH)[1]["data"]["atMs"] for _ in range(5)]
    assert (len(set(taken)), open_world.source.asked) == (1, 1)
    open_world.clock.now_s += KEPT_S
    assert open_world.browser.ask("GET", STATUS_PATH)[1]["data"]["atMs"] == taken[0] + KEPT_S * 1000
    assert open_world.source.asked == 2


def test_the_status_of_all_pages_is_written_once() -> None:
    clock = Clock()
    operation = StatusOperation(FakeSource(), clock)
    first, second = (operation.run(None, Caller()) for _ in range(2))
    assert first is second
    clock.now_s += KEPT_S
    assert operation.run(None, Caller()) is not first


def test_segments_are_shown_with_their_places(open_world: World) -> None:
    answer = open_world.browser.ask("POST", "/ui/api/view/segments", {"collectionName": "books"})[1]
    stored, growing = answer["data"]
    vchannel = open_world.verbs.collection("default", "books").view.vchannels[0]
    assert stored == ["7", "Flushed", 3, "1", vchannel, ["3"], 64, ""]
    assert growing == ["9", "Growing", 3, "1", vchannel, [], 0, ""]


def test_the_doctor_and_the_audit_log_are_for_those_who_may(world: World) -> None:
    world.source.records = [{"operation": "DropCollection"}]
    world.browser.sign_in("ada", "secret-ada")
    assert [world.browser.ask("GET", f"/ui/api/{path}")[0] for path in ("doctor", "audit")] == [403, 403]
    granted(world.verbs, "GetStatistics", ANY, ANY)
    assert [world.browser.ask("GET", f"/ui/api/{path}")[0] for path in ("doctor", "audit")] == [200, 403]
    granted_too = Grant("Global", ANY, ANY, "ManageOwnership")
    world.verbs.set_grant("reader", granted_too, True, False)
    assert world.browser.ask("GET", "/ui/api/audit")[1]["data"]["records"] == world.source.records
    (finding,) = world.browser.ask("GET", "/ui/api/doctor")[1]["data"]["findings"]
    assert (finding["severity"], finding["finding"]) == ("warning", "release 9.9 is old")
    assert world.source.asked == 1, "the doctor looks at the status that is kept"


def test_a_filter_and_a_moment_are_checked(open_world: World) -> None:
    def check(**more: str) -> tuple[int, dict[str, object]]:
        return open_world.browser.ask("POST", "/ui/api/view/check", {"collectionName": "books", **more})

    assert check(filter="id > 0")[1]["data"] == {"rows": 2, "timestamp": "0"}
    moment = check(asOf="2026-01-31T12:00:00Z")[1]["data"]
    assert int(moment["timestamp"]) >> 18 == 1769860800000
    assert open_world.verbs.queries[-1].consistency.travel_ts == int(moment["timestamp"])
    for wrong in ({"filter": "id >"}, {"asOf": "yesterday"}, {"filter": "nothing == 1"}):
        assert check(**wrong)[0] == 400


def test_vectors_are_projected_from_a_sample(open_world: World) -> None:
    books(open_world.verbs, 40, "shelf")

    def projection(**more: object) -> tuple[int, dict[str, object]]:
        sent = {"collectionName": "shelf", "fieldName": "vector", **more}
        return open_world.browser.ask("POST", "/ui/api/view/projection", sent)

    data = projection(colorField="title", limit=100)[1]["data"]
    assert (data["count"], data["share"]) == (40, 1.0)
    keys, xs, ys, colors = zip(*data["rows"], strict=True)
    assert (sorted(keys), colors[0]) == (list(range(40)), f"<b>{keys[0]}</b>")
    assert max(xs) - min(xs) == pytest.approx(39)
    assert max(ys) - min(ys) < 0.01
    assert len(projection(filter="id > 32")[1]["data"]["rows"]) == 7
    projection(limit=10)
    asked = open_world.verbs.queries[-1]
    assert (asked.limit, "random_sample(0.125" in asked.filter) == (10, True)
    for wrong in ({"fieldName": "id"}, {"fieldName": "none"}, {"limit": 0}, {"limit": 5001}):
        assert projection(**wrong)[0] == 400


def test_vchannels_are_shown_with_their_pchannels(open_world: World) -> None:
    answer = open_world.browser.ask("POST", "/ui/api/view/vchannels", {"collectionName": "books"})[1]
    view = open_world.verbs.collection("default", "books").view
    assert [one["vchannel"] for one in answer["data"]] == list(view.vchannels)
    assert all(one["vchannel"].startswith(one["pchannel"]) for one in answer["data"])


@pytest.mark.parametrize("path", ["view/secrets", "call/collections/none", "none"])
def test_there_is_nothing_else(open_world: World, path: str) -> None:
    assert open_world.browser.ask("POST", f"/ui/api/{path}", {})[0] in (404, 405)


def test_bad_requests_are_errors_with_their_statuses(open_world: World) -> None:
    browser = open_world.browser
    assert browser.call("collections/describe", collectionName="none") == (404, 100)
    assert browser.call("collections/describe", nonsense=1)[0] == 400
    status, _ = browser.ask("POST", "/ui/api/call/collections/list", {"dbName": "x" * BODY_MAX_BYTES})
    assert status == 413


@pytest.mark.parametrize("name", ["..%2fapp.py", "%2e%2e/app.py", "none.js", "api"])
def test_only_the_files_of_the_pages_are_served(browser: Browser, name: str) -> None:
    assert browser.ask("GET", f"/ui/{name}")[0] == 404


def test_a_file_that_has_not_changed_is_not_sent_again(browser: Browser) -> None:
    status, content = browser.ask("GET", "/ui/main.js")
    assert (status, browser.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert browser.ask("GET", "/ui/main.js", If_None_Match=browser.headers["etag"]) == (304, b"")
    assert b"import" in content

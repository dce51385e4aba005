"""The console in a real browser, where there is one: signing in by keyboard, every page, both color schemes.

The browser is Chromium: an installed one, or that of the variable ``CHROMIUM``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from console_client import World, books, served, shelve
from fake_verbs import FakeVerbs

from elanus.console.sessions import SESSION_S
from elanus.core.access import User, with_user
from elanus.core.ids import SegmentID
from tools.browser import Page, find, opened

PROGRAM = find()
TOTAL_MAX_BYTES = 300_000
PAGES = {
    "overview": "does not answer",
    "collections/default/books": "FloatVector",
    "segments/default/books": "2 segments, 6 rows",
    "jobs": "a flush was due",
    "playground/default/books": "Random row",
    "projection/default/books": "3 of 3 rows",
    "channels/default/books": "dml_0",
    "searches": "ef 8 is small",
    "estimate": "Estimate",
    "doctor": "release 9.9 is old",
    "users": "DescribeCollection",
}
"""The address of each page, and a text that the server's answers put there."""
pytestmark = pytest.mark.skipif(not PROGRAM, reason="needs Chromium; CHROMIUM names its program")


@pytest.fixture
def world(verbs: FakeVerbs) -> Iterator[World]:
    books(verbs)
    with served(verbs, users=True) as made:
        yield made


@pytest.fixture
def page(tmp_path: Path, world: World) -> Iterator[Page]:
    with opened(PROGRAM, tmp_path) as made:
        made.open(address(world))
        made.wait_for("document.activeElement && document.activeElement.name === 'user'")
        yield made


def address(world: World) -> str:
    return f"http://127.0.0.1:{world.browser.port}/ui/"


def sign_in(page: Page, user: str, password: str) -> None:
    """By keyboard alone: the focus is on the name."""
    page.write(user)
    page.press("Tab")
    page.write(password)
    page.press("Enter")


def test_every_page_in_a_browser(page: Page, world: World) -> None:
    sign_in(page, "root", "wrong")
    page.wait_for_text("auth check failure")
    page.open(address(world) + "?again")
    page.wait_for("document.activeElement && document.activeElement.name === 'user'")
    sign_in(page, "root", "Milvus")
    page.wait_for_text("Sign out")
    shown = set(page.value("[...document.querySelectorAll('nav a')].map((a) => a.hash.slice(2))"))
    assert shown == {name.partition("/")[0] for name in PAGES}, "every page of the console is opened here"
    for name, text in PAGES.items():
        page.value(f"location.hash = '#/{name}'")
        page.wait_for_text(text)
    assert page.problems == [], "no script failed, and the policy forbade nothing"
    assert [url for url in page.urls if not url.startswith(address(world)[:-4])] == []
    assert page.size_bytes < TOTAL_MAX_BYTES
    assert len({color_in(page, scheme) for scheme in ("light", "dark")}) == 2


def color_in(page: Page, scheme: str) -> str:
    page.use_scheme(scheme)
    color: str = page.value("getComputedStyle(document.body).backgroundColor")
    return color


def test_no_page_is_wider_than_a_narrow_window(page: Page, world: World) -> None:
    """Tables scroll by themselves, and long names are cut or broken."""
    books(world.verbs, name="a_collection_with_a_long_name_" * 8)
    sign_in(page, "root", "Milvus")
    page.wait_for_text("Sign out")
    page.resize(400, 800)
    for name, text in PAGES.items():
        page.value(f"location.hash = '#/{name}'")
        page.wait_for_text(text)
        assert page.value("document.documentElement.scrollWidth") <= 400, name
        assert page.value("document.querySelector('h1').getBoundingClientRect().top") < 250, name


def test_a_picture_fits_its_window_again(page: Page, world: World) -> None:
    sign_in(page, "root", "Milvus")
    page.wait_for_text("Sign out")
    for name in ("segments", "projection"):
        page.resize(1000, 800)
        page.value(f"location.hash = '#/{name}/default/books'")
        page.wait_for(
            "document.title.startsWith('" + name + "') && document.querySelector('canvas')?.width > 600"
        )
        page.resize(500, 800)
        page.wait_for(
            "document.querySelector('canvas').width === document.querySelector('canvas').clientWidth"
        )


def test_a_page_says_what_is_wrong_and_comes_back(page: Page, world: World) -> None:
    sign_in(page, "root", "Milvus")
    page.wait_for_text("Sign out")
    page.value("location.hash = '#/%'")  # typed wrong: the first page
    page.wait_for_text("Roles")
    page.value("window.answering = window.fetch; window.fetch = () => Promise.reject(new TypeError('gone'))")
    page.value("location.hash = '#/jobs'")
    page.wait_for_text("The server does not answer.")
    page.value("window.fetch = window.answering")
    page.wait_for_text("a flush was due")
    page.value("location.hash = '#/playground/default/books'")
    page.wait_for_text("Random row")
    page.value("document.querySelector('textarea').value = '[1,'")
    page.value("document.querySelector('form').requestSubmit()")
    page.wait_for_text("The vector: not valid JSON")
    world.clock.now_s += SESSION_S
    page.value("location.hash = '#/users'")
    page.wait_for_text("The session has ended: sign in again.")
    assert page.problems == []


def test_a_row_is_searched_for_by_its_whole_key(page: Page, world: World) -> None:
    """A field of one line drops the line breaks of a key, and spaces at its ends belong to it."""
    keys = ["  two\nlines\t ", "\"<i>'{\u2028"]
    shelve(world.verbs, "odd", [{"id": key, "vector": [1.0, at]} for at, key in enumerate(keys)], "VarChar")
    sign_in(page, "root", "Milvus")
    page.wait_for_text("Sign out")
    for key in keys:
        page.value(f"location.hash = '#/playground/default/odd/' + encodeURIComponent({json.dumps(key)})")
        page.wait_for("document.title.startsWith('playground') && document.querySelector('form')")
        page.value("document.querySelector('form').requestSubmit()")
        page.wait_for("document.querySelector('[aria-live=polite]').innerText")  # the answer of the fake
        page.value("location.hash = '#/estimate'")
        page.wait_for_text("Values of a sparse vector")
    asked = [search.query_ids.to_pylist() for search in world.verbs.searches if search.query_ids is not None]
    assert asked == [[key] for key in keys]
    page.value("location.hash = '#/playground/default/odd/1'")
    page.wait_for("document.title.startsWith('playground') && document.querySelector('form')")
    world.clock.now_s += SESSION_S
    page.value("document.querySelector('form').requestSubmit()")
    page.wait_for_text("The session has ended: sign in again.")


def test_ten_thousand_segments_are_one_picture(
    page: Page, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tiles are painted, not elements: the page stays as small as with two segments."""
    first = world.verbs.persistent_segments("default", "books")[0]
    many = [replace(first, segment_id=SegmentID(n), rows=1 + n % 97) for n in range(10_000)]
    monkeypatch.setattr(world.verbs, "persistent_segments", lambda database, collection: many)
    sign_in(page, "root", "Milvus")
    page.wait_for_text("Sign out")
    page.value("location.hash = '#/segments/default/books'")
    page.wait_for_text("10,000 segments")
    page.wait_for("document.querySelector('canvas').width > 0")
    assert page.value("document.querySelectorAll('*').length") < 300
    page.wait_for(
        "new Set(new Uint32Array(document.querySelector('canvas').getContext('2d')"
        ".getImageData(0, 0, 200, 200).data.buffer)).size > 1"
    )


def test_a_user_without_grants_sees_no_names(page: Page, world: World) -> None:
    world.verbs.policy = with_user(world.verbs.policy, User("ada", "secret1", 1), 10)
    sign_in(page, "ada", "secret1")
    page.wait_for_text("Your user may not see this page.")
    assert "permission deny to ada" in page.text()
    for name in ("collections", "segments", "playground", "channels"):
        page.value(f"location.hash = '#/{name}'")
        page.wait_for(
            f"document.title.startsWith('{name}') && document.querySelector('#content h1 + div').innerText"
        )
        assert "books" not in page.text(), name
    assert page.problems == []

"""The pages of the console: they are small, load nothing from elsewhere, and draw what a server answers.

Node runs the pages in a document of the test's own (``console_dom.js``), where there is Node.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from console_client import World, books, served, shelve
from fake_verbs import FakeVerbs

from elanus.console.files import static_files
from elanus.core.timestamps import physical_ms

TOTAL_MAX_BYTES = 300_000
NODE = shutil.which("node")
HERE = Path(__file__).parent
with_node = pytest.mark.skipif(NODE is None, reason="needs node")
Drawn = Callable[..., dict[str, Any]]


def run_node(*arguments: str) -> str:
    assert NODE is not None
    done = subprocess.run([NODE, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """The pages in a directory where Node takes them for modules."""
    for name, file in static_files().items():
        (tmp_path / name).write_bytes(file.content)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return tmp_path


@pytest.fixture
def world(verbs: FakeVerbs) -> Iterator[World]:
    books(verbs)
    with served(verbs, users=False) as made:
        yield made


@pytest.fixture
def drawn(world: World, modules: Path) -> Drawn:
    """Draws the page at an address, presses a button, and returns what is shown."""
    program = str(shutil.copy(HERE / "console_dom.js", modules))

    def draw(address: str, button: str = "", check: str = "") -> dict[str, Any]:
        url = f"http://127.0.0.1:{world.browser.port}"
        found: dict[str, Any] = json.loads(run_node(program, str(modules), url, address, button, check))
        return found

    return draw


def test_the_pages_are_small() -> None:
    assert sum(len(file.content) for file in static_files().values()) < TOTAL_MAX_BYTES


@pytest.mark.parametrize("name", sorted(static_files()))
def test_a_file_names_no_other_host_and_nothing_that_the_policy_forbids(name: str) -> None:
    text = static_files()[name].content.decode()
    namespace = "http://www.w3.org/2000/svg"  # a name, which nobody loads
    assert set(re.findall(r"https?://[^\s\"'<>)]*", text)) <= {namespace}
    assert not re.search(r"[\"'(]//", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function|\bstyle=", text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=\"", text)


@pytest.mark.parametrize("name", sorted(name for name in static_files() if name.endswith(".js")))
def test_a_module_imports_modules_that_are_there(name: str) -> None:
    text = static_files()[name].content.decode()
    for found, source in re.findall(r"^import (.*?) ?from \"(.*?)\";$", text, re.MULTILINE):
        assert source.removeprefix("./") in static_files(), source
        exported = static_files()[source.removeprefix("./")].content.decode()
        for imported in re.findall(r"\w+", found):
            declared = rf"export (?:async )?(?:function|const|class|default async function) {imported}\b"
            assert re.search(declared, exported), f"{source} has no {imported}"


def test_the_page_loads_files_that_are_there() -> None:
    page = static_files()["index.html"].content.decode()
    loaded = re.findall(r'(?:src|href)="/ui/([^"]+)"', page)
    assert {"main.js", "style.css", "icon.svg"} == set(loaded) <= set(static_files())


@with_node
@pytest.mark.parametrize(
    ("address", "texts"),
    [
        ("", ["rootcoord", "does not answer", "default.books", "500.0 MB", "__default_resource_group"]),
        ("#/collections", ["books", "FloatVector", "dim=2", "Loaded", "<b>2</b>", "_default", "L2"]),
        ("#/segments/default/books", ["2 segments, 6 rows", "Flushed", "Growing"]),
        ("#/jobs", ["job-1", "flush", "finished", "a flush was due", "2.0 s"]),
        ("#/playground/default/books", ["Vector field", "vector", "Random row"]),
        ("#/channels/default/books", ["dml_0", "2.5 s", "Vchannels", "Pchannels"]),
        ("#/searches", ["default.books.vector", "0.400 to 0.600", "ef 8 is small", "Search: 1234.50 ms"]),
        (
            "#/users",
            ["root", "public", "DescribeCollection", "need not sign in", "API keys", "audit.enabled"],
        ),
        ("#/doctor", ["warning", "release 9.9 is old", "a figure", "do this", "a-rule"]),
        ("#/projection/default/books", ["3 of 3 rows", "100 % of their variance", "Color"]),
        ("#/playground/default/books/2", ["As of", "Filter"]),
        ("#/none", ["Overview", "rootcoord"]),
    ],
)
def test_a_page_shows_what_the_server_answers(drawn: Drawn, address: str, texts: list[str]) -> None:
    shown = drawn(address)["text"]
    assert [text for text in texts if text not in shown] == [], shown


@with_node
def test_texts_of_users_never_become_elements(drawn: Drawn) -> None:
    shown = drawn("#/collections/default/books")
    assert "<b>1</b>" in shown["text"]
    assert "b" not in shown["tags"]


@with_node
def test_segments_are_drawn_as_a_picture(drawn: Drawn) -> None:
    assert drawn("#/segments/default/books")["drawn"].count("fillRect") == 2


@with_node
def test_the_tiles_can_be_reached_by_keyboard(drawn: Drawn) -> None:
    shown = drawn("#/segments/default/books", "ArrowRight")["text"]
    assert "segment 7 · Flushed · 3 rows" in shown, shown


@with_node
def test_vectors_are_points_that_lead_to_a_search(drawn: Drawn) -> None:
    shown = drawn("#/projection/default/books", "ArrowRight")
    assert shown["drawn"].count("fillRect") == 3
    assert "row 0" in shown["text"]
    searched = drawn("#/projection/default/books", "ArrowRight Enter")
    assert searched["hash"] == "#/playground/default/books/0"


@with_node
def test_a_filter_is_checked_while_it_is_typed(drawn: Drawn) -> None:
    assert "2 rows match" in drawn("#/playground/default/books", "Filter: id > 0")["text"]
    wrong = drawn("#/playground/default/books", "Filter: id >")
    assert "rows match" not in wrong["text"]
    assert "bad" in wrong["classes"]


@with_node
def test_a_search_is_as_of_the_moment_of_its_field(drawn: Drawn, world: World) -> None:
    drawn("#/playground/default/books", "Search", "As of: 2026-01-31T12:00:00Z")
    assert [physical_ms(search.consistency.travel_ts) for search in world.verbs.searches] == [1769860800000]


@with_node
def test_the_audit_log_is_on_the_page_of_users(drawn: Drawn, world: World) -> None:
    record = {"time": "2026-01-01", "user": "eve", "key": "5f0c", "origin": "10.0.0.7", "code": 7}
    about = {"operation": "DropCollection", "database": "shop", "objects": ["films"], "decision": "refused"}
    world.source.records = [{**record, **about}]
    shown = drawn("#/users")["text"]
    expected = ("eve, key 5f0c", "DropCollection", "shop: films", "refused")
    assert [text for text in expected if text not in shown] == []


@with_node
def test_the_next_page_of_rows_begins_after_the_last_key(drawn: Drawn, world: World) -> None:
    books(world.verbs, 40, "shelf")
    first = drawn("#/collections/default/shelf")["text"]
    assert ("<b>24</b>" in first, "<b>25</b>" in first) == (True, False)
    following = drawn("#/collections/default/shelf", "Next")["text"]
    shown = [f"<b>{key}</b>" in following for key in (24, 25, 39)]
    assert shown == [False, True, True]


@with_node
def test_every_key_of_any_row_is_a_column(drawn: Drawn, world: World) -> None:
    rows = [{"id": 1, "vector": [1, 1]}, {"id": 2, "vector": [2, 1], "#tone": "a dark tone"}]
    shelve(world.verbs, "tones", rows)
    for pressed in ({"address": "#/collections/default/tones"}, {**playground("tones"), "button": "Search"}):
        shown = drawn(**pressed)["text"]
        assert ("#tone" in shown, "a dark tone" in shown) == (True, True), shown


def playground(collection: str) -> dict[str, str]:
    return {"address": f"#/playground/default/{collection}"}


@with_node
def test_a_long_text_is_cut_until_it_is_asked_for(drawn: Drawn, world: World) -> None:
    shelve(world.verbs, "long", [{"id": 1, "vector": [1, 1], "text": "word " * 2000 + "end"}])
    address = "#/collections/default/long"
    assert 500 < len(drawn(address)["text"]) < 2000
    assert "word end" in drawn(address, "All 10,003 characters")["text"]


@with_node
def test_an_address_of_what_is_not_there_says_so(drawn: Drawn) -> None:
    assert "There is no films that you may see." in drawn("#/collections/default/films")["text"]
    assert "There is no shop that you may see." in drawn("#/segments/shop/books")["text"]
    assert "that you may see" not in drawn("#/segments/default/books")["text"]


@with_node
def test_a_page_that_failed_says_why_and_can_be_tried_again(drawn: Drawn, world: World) -> None:
    world.source.broken = True
    shown = drawn("#/overview")
    assert "the coordinators do not answer" in shown["text"], shown
    assert "Try again" in shown["text"]


@with_node
def test_a_pasted_vector_is_searched_for(drawn: Drawn, world: World) -> None:
    shown = drawn("#/playground/default/books", "Search")["text"]
    assert "3 hits" in shown, shown
    assert "<b>1</b>" in shown
    assert len(world.verbs.searches) == 1


@with_node
def test_a_search_is_explained_if_the_box_is_checked(drawn: Drawn) -> None:
    shown = drawn("#/playground/default/books", "Search", "Explain")["text"]
    assert "What the search did" in shown
    assert "check and decode the request" in shown


@with_node
def test_a_collection_is_estimated_before_it_exists(drawn: Drawn) -> None:
    shown = drawn("#/estimate", "Estimate")["text"]
    assert "1,000,000 rows in" in shown, shown
    assert "memory to load" in shown
    assert "HNSW" in shown


@with_node
def test_a_random_row_is_searched_for_by_its_key(drawn: Drawn, world: World) -> None:
    drawn("#/playground/default/books", "Random row")
    assert [search.query_ids is not None for search in world.verbs.searches] == [True]
    assert world.recorded[-1][0] == "Rest.Search"


@with_node
def test_a_server_with_users_shows_the_sign_in(verbs: FakeVerbs, modules: Path) -> None:
    program = str(shutil.copy(HERE / "console_dom.js", modules))
    with served(verbs, users=True) as world:
        url = f"http://127.0.0.1:{world.browser.port}"
        shown = json.loads(run_node(program, str(modules), url, "#/users", ""))
    assert "Sign in" in shown["text"]
    assert "root" not in shown["text"]


@with_node
def test_ten_thousand_segments_are_tiles_that_fill_the_picture(modules: Path) -> None:
    found = json.loads(run_node(str(shutil.copy(HERE / "console_treemap.js", modules))))
    assert found == {"tiles": 10_000, "groups": 8, "calls": 10_008, "wrong": 0, "long": 0, "lost": 0}


@with_node
def test_rates_lines_and_literals(modules: Path) -> None:
    assert json.loads(run_node(str(shutil.copy(HERE / "console_figures.js", modules)))) == [
        *(10, None, None),
        *("1.5 kB", "1.5 min", "M0.0 10.0L5.0 5.0L10.0 0.0"),
        *('"a\\"b"', "9223372036854775807"),
        [[0, 0.1], [0.8, 0.2]],
        *({"ids": ["7"]}, {"data": [[1, 2]]}, {"data": ["blue sky"]}),
        *([[12, 87], [212, 87], [112, 37]], 1, -1),
    ]

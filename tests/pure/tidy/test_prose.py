"""The project is written in plain English: some words are not used in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prose import findings_in
from test_house_rules import FILES, shown

SUFFIXES = {".py", ".pyi", ".md", ".txt", ".toml", ".yaml", ".yml", ".lark", ".mjs", ""}
NOT_OURS = ("src/elanus/proxy/wire/protos/", "LICENSE", "examples/data/", ".")
LISTS = {Path(__file__), Path(__file__).with_name("prose.py")}
"""The files that name the words."""


def test_words_that_are_not_used() -> None:
    ours = [f for f in FILES if f.suffix in SUFFIXES and f not in LISTS and not shown(f).startswith(NOT_OURS)]
    found = [str(one) for path in ours for one in findings_in(shown(path), path.read_text())]
    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1\ny = all_heard(x)\n", [(2, "heard")]),
        ("class ToldTwice: ...\n", [(1, "told")]),
        ('_log.info("watching anew", prefix=p)\n', [(1, "anew")]),
        ("# a node that mends itself (seed 3, 6.6.4)\n", [(1, "mends"), (1, "seed 3")]),
        ('"""Sentence.\n\nWho takes it waits. What is this? It is."""\n', [(3, "Who")]),
        ('def f():\n    """Of a task, the end."""\n', [(2, "Of a")]),
        ("# What runs in the worker\n", [(1, "What")]),
        ('"""Rows of\nbefore."""\n', [(1, "of\nbefore")]),
        ("nearest_neighbours = recognised(rows)\n", [(1, "neighbours"), (1, "recognised")]),
        ('where = file.tell()\nraise X("disk quota exceeded")\n', []),
        ("hash = murmur3(key, seed)  # seed 0, seed 17\nbackground = 1\n", []),
    ],
)
def test_what_is_found_in_python(text: str, found: list[tuple[int, str]]) -> None:
    assert sorted((one.line, one.word) for one in findings_in("a.py", text)) == sorted(found)


def test_what_is_found_in_pages_and_in_names_of_files() -> None:
    page = "# What works\n\nIt works. Who asks, knows.\n\n```\nWho asks.\n```\n\n- What it lacks is here.\n"
    assert [(one.line, one.word) for one in findings_in("a.md", page)] == [(3, "Who"), (9, "What")]
    assert [one.word for one in findings_in("test_handover.py", "")] == ["handover"]

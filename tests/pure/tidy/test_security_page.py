"""Each promise of docs/security.md names its tests: they exist, run, and assert something."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
PROMISES = re.findall(
    r"^\| (?!promise|-)([^|]+) \| ([^|]*) \|$", PAGE.partition("## What is promised")[2], re.MULTILINE
)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_the_table_was_found() -> None:
    assert len(PROMISES) >= 15


@pytest.mark.parametrize(("promise", "tests"), PROMISES)
def test_a_promise_has_tests_that_can_fail(promise: str, tests: str) -> None:
    named = NAMED.findall(tests)
    assert len(named) == len(tests.split("<br>")), "name a test as `tests/FILE.py::test_NAME`"
    for path, name in named:
        functions = {
            one.name: one
            for one in ast.parse((ROOT / path).read_text()).body
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in functions, f"{path} has no {name}: {promise}"
        marks = "".join(ast.unparse(mark) for mark in functions[name].decorator_list)
        assert not re.search(r"mark\.skip\b|xfail", marks), f"{name} never fails"
        assert any(map(_asserts, ast.walk(functions[name]))), f"{name} asserts nothing"


def _asserts(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.withitem) and "raises" in ast.unparse(node))

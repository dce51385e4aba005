"""The rules of the house that no linter knows: what every file of the project keeps to."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINES_MAX = 500
FUNCTION_LINES_MAX = 80
SIZE_MAX_BYTES = 3_000_000

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\bfor now\b|\b[Pp]hase \d", re.MULTILINE)
"""Words of work that was left for later. Gaps are described in words, or closed."""

MACHINE_PATH = re.compile(r"(?<![\w.~/>])/(home|root|tmp|mnt|wor[k]|Users)/\w")
"""Paths that exist on one machine only."""


def tracked_files() -> list[Path]:
    """The files of the repository; those of a source tree without git, all but hidden ones and builds."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
        found = [ROOT / name for name in names if name]
        return [f for f in found if f.is_file() or f.is_symlink()]
    return [f for f in ROOT.rglob("*") if f.is_file() and not _is_hidden(f.relative_to(ROOT))]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part in ("__pycache__", "out", "build", "dist") for part in path.parts)


FILES = tracked_files()
PYTHON_FILES = [f for f in FILES if f.suffix == ".py"]
MODULES = [f for f in PYTHON_FILES if (ROOT / "src") in f.parents]
TEXT_FILES = [
    f
    for f in FILES
    if f.suffix in {".py", ".md", ".toml", ".yaml", ".yml", ".lark", ".cfg"} or f.name in ("Makefile", "run")
]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_tree_was_found() -> None:
    assert len(MODULES) > 30
    assert {"README.md", "Makefile", "pyproject.toml"} <= {shown(f) for f in TEXT_FILES}


def test_no_file_is_a_link() -> None:
    """A link may lead out of the project, to a file that only its author has."""
    assert [shown(path) for path in FILES if path.is_symlink()] == []


def test_modules_say_what_they_are_in_a_first_sentence() -> None:
    wrong = []
    for path in MODULES:
        source = path.read_text()
        if path.name == "__init__.py" and not source.strip():
            continue
        first_line = (ast.get_docstring(parsed(path)) or "").partition("\n")[0]
        if not first_line.endswith((".", ":", "?")):
            wrong.append(f"{shown(path)}: {first_line!r}")
    assert wrong == []


def test_files_hold_one_idea() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in PYTHON_FILES}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_functions_can_be_seen_at_once() -> None:
    long = {
        f"{shown(path)}: {node.name}": node.end_lineno - node.lineno + 1
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    }
    assert long == {}


@pytest.mark.parametrize("words", [UNFINISHED, MACHINE_PATH], ids=["unfinished", "machine path"])
def test_words_that_appear_nowhere(words: re.Pattern[str]) -> None:
    found = {
        shown(path): [match.group() for match in words.finditer(path.read_text())]
        for path in TEXT_FILES
        if path != Path(__file__)
    }
    assert {name: matches for name, matches in found.items() if matches} == {}


def test_lists_of_exports_are_sorted_and_true() -> None:
    for path in MODULES:
        tree = parsed(path)
        for names in _export_lists(tree):
            assert names == sorted(names), shown(path)
            assert set(names) <= _defined(tree), f"{shown(path)} names what it does not have"


def _export_lists(tree: ast.Module) -> Iterator[list[str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            yield list(ast.literal_eval(node.value))


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module's top level binds."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_no_file_is_large() -> None:
    assert [shown(f) for f in FILES if f.stat().st_size > SIZE_MAX_BYTES] == []


def test_scripts_can_be_run() -> None:
    for path in FILES:
        with path.open("rb") as file:
            is_script = file.read(2) == b"#!"
        assert not is_script or path.stat().st_mode & 0o100, f"{shown(path)} begins with #! and cannot be run"


def test_no_two_test_files_have_one_name() -> None:
    """Test directories are no packages: pytest takes two modules of one name for the same."""
    names = [f.name for f in PYTHON_FILES if (ROOT / "tests") in f.parents and f.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def test_nothing_waits_with_what_may_forget_a_cancellation() -> None:
    """`asyncio.wait_for` does, before Python 3.12, when what it waits for comes in the same moment; a role
    that is stopped would then never end. `asyncio.timeout` does not."""
    using = [shown(path) for path in MODULES if "asyncio.wait_for(" in path.read_text()]
    assert using == []


def test_no_test_changes_the_time_of_its_whole_process() -> None:
    """Threads of libraries sleep and read clocks as well: a clock or a sleep is an argument."""
    wrong = [
        f"{shown(path)}:{call.lineno}"
        for path in PYTHON_FILES
        if (ROOT / "tests") in path.parents
        for call in ast.walk(parsed(path))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("setattr") and call.args
        if re.search(r"(^|\.)time($|\.)", ast.unparse(call.args[0]).strip("'"))
    ]
    assert wrong == []


def test_the_map_of_core_names_each_of_its_modules_once() -> None:
    """Nobody finds a module among a hundred by its name alone."""
    package = ROOT / "src" / "elanus" / "core"
    text = (ast.get_docstring(parsed(package / "__init__.py")) or "").partition("by subject:")[2]
    lines = [line.partition(":")[2] for line in text.replace("\n  ", " ").splitlines()]
    named = [name.strip() for line in lines for name in re.sub(r"\([^)]*\)", "", line).split(",")]
    assert sorted(filter(None, named)) == sorted(p.stem for p in package.glob("*.py") if p.stem != "__init__")

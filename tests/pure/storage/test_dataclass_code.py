"""The methods of dataclasses are compiled once per installation, and are the same methods."""

from __future__ import annotations

import builtins
import dataclasses
import marshal
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from elanus.storage import dataclass_code
from elanus.storage.dataclass_code import code_file, compiled_methods


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The sources that are compiled, while Python may write bytecode."""
    found: list[str] = []
    real = compile

    def record(source: str, *arguments: object, **options: object) -> object:
        found.append(source)
        return real(source, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(dataclass_code, "compile", record, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield found
    assert "exec" not in vars(dataclasses), "dataclasses made later are compiled by Python's own exec"


def make_point(default: int = 2) -> type:
    @dataclass(frozen=True, slots=True, order=True)
    class Point:
        x: int
        y: int = default

    return Point


def check_point(point: type, default: int = 2) -> None:
    assert repr(point(1)).endswith(f"Point(x=1, y={default})")
    assert point(1) == point(1, default) < point(3)
    assert len({point(1), point(1, default), point(1, 5)}) == 2
    with pytest.raises(FrozenInstanceError):
        point(1).x = 2


def test_the_second_process_compiles_nothing(tmp_path: Path, compilations: list[str]) -> None:
    file = tmp_path / "cache" / "methods"
    with compiled_methods(file):
        check_point(make_point())
    assert any("__init__" in source for source in compilations)
    compilations.clear()
    with compiled_methods(file):
        check_point(make_point(default=7), default=7)  # a default is a value and no source
    assert not compilations
    assert [found.name for found in file.parent.iterdir()] == ["methods"], "no half-written file is left"


def test_a_changed_class_is_compiled_and_added(tmp_path: Path, compilations: list[str]) -> None:
    file = tmp_path / "methods"
    with compiled_methods(file):
        dataclass(type("Changed", (), {"__annotations__": {"a": int}}))
    compilations.clear()
    with compiled_methods(file):
        changed = dataclass(type("Changed", (), {"__annotations__": {"a": int, "b": int}}))
    assert changed(1, 2) == changed(1, 2) != changed(2, 1)
    assert compilations
    compilations.clear()
    with compiled_methods(file):
        dataclass(type("Changed", (), {"__annotations__": {"a": int}}))
        dataclass(type("Changed", (), {"__annotations__": {"a": int, "b": int}}))
    assert not compilations, "both are kept: programs of one installation use different classes"


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"other",
        MAGIC_NUMBER,
        MAGIC_NUMBER + b"\xff",
        MAGIC_NUMBER + marshal.dumps({"a": 1})[:-3],
        MAGIC_NUMBER + marshal.dumps([]),
    ],
)
def test_a_damaged_file_is_written_again(tmp_path: Path, compilations: list[str], damaged: bytes) -> None:
    file = tmp_path / "methods"
    file.write_bytes(damaged)
    with compiled_methods(file):
        check_point(make_point())
    compilations.clear()
    with compiled_methods(file):
        check_point(make_point())
    assert not compilations


def test_nothing_is_written_where_python_may_not_write_bytecode(
    tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with compiled_methods(tmp_path / "methods"):
        check_point(make_point())
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_only_costs_time(tmp_path: Path, compilations: list[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with compiled_methods(blocked / "methods"):
        check_point(make_point())
    assert compilations


def test_the_file_does_not_grow_with_every_version(
    tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataclass_code, "SOURCES_MAX", 40)
    file = tmp_path / "methods"
    for version in range(30):
        with compiled_methods(file):
            dataclass(type("Grown", (), {"__annotations__": {f"field_{version}": int}}))
    kept = marshal.loads(file.read_bytes()[len(MAGIC_NUMBER) :])
    assert 0 < len(kept) <= 40
    assert any("field_29" in source for source in kept)


def test_the_file_is_next_to_the_bytecode_of_this_release_of_python() -> None:
    assert code_file().parent.name == "__pycache__"
    assert code_file().name.endswith(str(sys.implementation.cache_tag))


def test_an_error_in_an_import_leaves_python_as_it_was(tmp_path: Path, compilations: list[str]) -> None:
    with pytest.raises(ImportError), compiled_methods(tmp_path / "methods"):
        raise ImportError("nothing of that name")
    assert dataclasses.__builtins__["exec"] is builtins.exec  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())

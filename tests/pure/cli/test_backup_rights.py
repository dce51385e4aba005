"""`elanus backup` and `elanus restore` by users who lack a right that the copy itself does not need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_backup_commands import Server, run, served

from elanus.core.errors import PermissionDenied


class Limited(Server):
    """A server whose user may neither release pins nor make aliases."""

    def release(self, snapshot_id: int) -> None:
        raise PermissionDenied("PrivilegeUnpinSnapshotData: permission deny to ada")

    def create_alias(self, database: str, name: str, alias: str) -> None:
        raise PermissionDenied("PrivilegeCreateAlias: permission deny to ada in the `shop` database")


@pytest.fixture
def source(tmp_path: Path) -> Server:
    made = Limited(tmp_path / "server")
    made.has("books", aliases=("b",))
    return made


@pytest.fixture
def place(source: Server) -> Iterator[str]:
    yield from served(source)


def test_a_backup_whose_pins_cannot_be_released_is_a_backup(place: str, tmp_path: Path) -> None:
    """Everything is copied by then, and the pins end with their leases."""
    said = run("backup", tmp_path / "t", "--name", "one", "--uri", place).output
    assert "pins not released, they end with their leases: PrivilegeUnpinSnapshotData" in said
    run("backup", tmp_path / "t", "--verify")
    assert "one" in run("backup", tmp_path / "t", "--list").output


def test_a_restore_without_the_right_to_aliases_has_the_rows_and_says_so(place: str, tmp_path: Path) -> None:
    run("backup", tmp_path / "t", "--uri", place)
    other = Limited(tmp_path / "other")
    for there in served(other):
        said = run("restore", tmp_path / "t", "--uri", there).output
        assert other.made == [("shop", "books")]
        assert "shop.books: its aliases were not made: b" in said
        assert "CreateAlias" in said

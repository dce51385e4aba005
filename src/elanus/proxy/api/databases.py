"""The verbs of databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from elanus.core.catalog import Database


class DatabaseVerbs(Protocol):
    def create_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Raises `InvalidParameter` for a name or property that is illegal, and for a name that is taken."""
        ...

    def drop_database(self, name: str) -> None:
        """Dropping one that does not exist succeeds, as in the reference."""
        ...

    def list_databases(self) -> Sequence[Database]: ...
    def describe_database(self, name: str) -> Database: ...
    def alter_database(
        self, name: str, set_properties: Mapping[str, str], delete_keys: Sequence[str]
    ) -> None:
        """Raises `InvalidParameter` for illegal values, and if nothing is to be changed."""
        ...

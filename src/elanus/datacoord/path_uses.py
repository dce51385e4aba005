"""Which object paths the records in force name, for a part that keeps something in memory per path."""

from __future__ import annotations

from typing import Protocol


class PathUses(Protocol):
    """A component that keeps something in memory per object path, for as long as a record names the path."""

    def use(self, path: str) -> None:
        """Note that a record names the path from now on."""

    def forget(self, path: str) -> None:
        """Note that no record needs the path any more."""


class NoUses:
    """For states of which nobody keeps paths."""

    def use(self, path: str) -> None:
        """Do nothing."""

    def forget(self, path: str) -> None:
        """Do nothing."""


def note_change(uses: PathUses, before: str, after: str) -> None:
    """Note that a record names ``after`` where it named ``before``; "" for no path."""
    if after == before:
        return
    if before:
        uses.forget(before)
    if after:
        uses.use(after)

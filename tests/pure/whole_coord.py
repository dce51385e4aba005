"""The data coordinator as its callers see it: one object with the calls of all its parts."""

from __future__ import annotations

from typing import Any

from elanus.datacoord.coord import DataCoord
from elanus.rpc.parts import method_of


class Coord:
    """``context``: what the role's parts share, for tests that look inside."""

    def __init__(self, role: DataCoord) -> None:
        self.role = role
        self.context = role._context
        self.start, self.stop = role.start, role.stop

    def __getattr__(self, method: str) -> Any:
        return method_of(self.role, method)

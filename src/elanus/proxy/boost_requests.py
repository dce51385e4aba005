"""Boosts as a client requests them, with filters as text (`elanus.api.boosts` has them compiled)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoostRequest:
    """``filter``: blank for all rows. ``random_field`` "": the primary key; see `elanus.api.boosts.Boost`."""

    filter: str
    weight: float
    is_random: bool = False
    seed: int = 0
    random_field: str = ""


@dataclass(frozen=True, slots=True)
class BoostRequests:
    """``boost_mode``, ``function_mode``: see `elanus.api.boosts.Boosts`."""

    functions: tuple[BoostRequest, ...]
    boost_mode: str = "multiply"
    function_mode: str = "multiply"

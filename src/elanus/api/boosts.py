"""Boosts: filters whose rows get other scores, part of a search (`elanus.api.querynode.NodeSearch`)."""

from __future__ import annotations

from dataclasses import dataclass

from elanus.expr import BoundFilter


@dataclass(frozen=True, slots=True)
class Boost:
    """``filter``: the rows whose scores change. ``weight``: see `elanus.core.rankers.boosted`.

    ``is_random``: the weight of a row is multiplied by a number in [0, 1) that depends on ``seed`` and on the
    row's value in the int64 field ``random_field``; "": on its primary key.
    """

    filter: BoundFilter
    weight: float
    is_random: bool = False
    seed: int = 0
    random_field: str = ""


@dataclass(frozen=True, slots=True)
class Boosts:
    """``function_mode``: combines the weights of one row; ``boost_mode``: the weight and the score."""

    functions: tuple[Boost, ...]
    boost_mode: str = "multiply"
    function_mode: str = "multiply"

"""How quick a server builds indexes, from the builds that it has done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

BUILD_S_MIN = 5.0
"""Shorter builds mostly wait for Spark."""


@dataclass(frozen=True, slots=True)
class PastBuild:
    """``planned_s``: what one core of the usual speed would take (`elanus.index.build_work`); ``took_s``: the
    job's time."""

    index_type: str
    planned_s: float
    took_s: float


def build_speed(builds: Iterable[PastBuild], index_type: str) -> tuple[float, int]:
    """Return how many seconds of planned work a second of a job does, and from how many builds this is known.

    Builds of the same type count, or all of them where there is none; (1.0, 0) without any.
    """
    long = [one for one in builds if one.took_s >= BUILD_S_MIN and one.planned_s > 0]
    counted = [one for one in long if one.index_type == index_type] or long
    if not counted:
        return 1.0, 0
    return sum(one.planned_s for one in counted) / sum(one.took_s for one in counted), len(counted)

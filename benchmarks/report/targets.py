"""The targets of Elanus, as ratios within one run, and whether they are met.

Most are ratios to Milvus 2.3.5, the server that its users would otherwise run; those about the kernel are
ratios to raw faiss; a few are plain bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from benchmarks.settings import SELECTIVITIES_PERCENT

Figures = Mapping[str, Mapping[str, float]]

SUBJECT = "elanus"


class Side(Enum):
    """On which side of its bound a figure must be."""

    AT_MOST = "≤"
    AT_LEAST = "≥"


@dataclass(frozen=True)
class Target:
    """One expectation.

    Attributes:
        claim: what is compared, for the reader.
        key: Elanus's metric.
        side: of `bound`.
        bound: a ratio when `against` is given, else a figure in the metric's unit.
        against: system compared with, or None for a plain bound.
        other_key: metric of `against`, where it is not `key`.
    """

    claim: str
    key: str
    side: Side
    bound: float
    against: str | None = None
    other_key: str | None = None

    @property
    def wanted(self) -> str:
        """The bound as text, such as ``≤ 0.65 × milvus``."""
        relation = f" × {self.against}" if self.against else ""
        return f"{self.side.value} {self.bound:g}{relation}"


@dataclass(frozen=True)
class Verdict:
    """A target and what was measured for it.

    Attributes:
        target: the expectation.
        reached: the ratio or figure; None when the run did not measure it.
    """

    target: Target
    reached: float | None

    @property
    def text(self) -> str:
        """``pass``, ``falls short`` or ``not measured``."""
        if self.reached is None:
            return "not measured"
        within = self.reached <= self.target.bound
        if self.target.side is Side.AT_LEAST:
            within = self.reached >= self.target.bound
        return "pass" if within else "**falls short**"


def _filters() -> tuple[Target, ...]:
    found: list[Target] = []
    for percent in SELECTIVITIES_PERCENT:
        found += [
            Target(f"filter {percent:g} %: recall@10", f"filter{percent:g}.recall", Side.AT_LEAST, 0.95),
            Target(f"filter {percent:g} %: QPS", f"filter{percent:g}.qps", Side.AT_LEAST, 2, "milvus"),
        ]
    return tuple(found)


TARGETS: tuple[Target, ...] = (
    Target("search, 1 client: p50", "search95.p50_ms", Side.AT_MOST, 0.5, "milvus"),
    Target("search, 1 client: QPS", "search95.qps", Side.AT_LEAST, 2.2, "milvus"),
    Target("search, 4 clients: QPS", "clients.qps", Side.AT_LEAST, 3, "milvus"),
    Target("server CPU per search", "search95.cpu_ms", Side.AT_MOST, 0.35, "milvus"),
    Target("batches of 100: queries/s", "batch.queries_per_s", Side.AT_LEAST, 0.7, "faiss"),
    *_filters(),
    Target("insert: server CPU per row", "insert.cpu_ms_per_1000_rows", Side.AT_MOST, 0.3, "milvus"),
    Target("insert, 4 clients: rows/s", "writers.rows_per_s", Side.AT_LEAST, 1.5, "milvus"),
    Target(
        "insert, 4 clients: server CPU per row", "writers.cpu_ms_per_1000_rows", Side.AT_MOST, 0.3, "milvus"
    ),
    Target("strong read after an insert: p50, ms", "after_insert.read_p50_ms", Side.AT_MOST, 20),
    Target("strong read after a delete: p50, ms", "after_delete.read_p50_ms", Side.AT_MOST, 20),
    Target("index build: time", "build.index_s", Side.AT_MOST, 1.2, "faiss"),
    Target(
        "search p99 during a build, to that at rest",
        "building.p99_ms",
        Side.AT_MOST,
        3,
        SUBJECT,
        "search95.p99_ms",
    ),
    Target("restart to searchable, s", "restart.searchable_s", Side.AT_MOST, 10),
    Target("online process, loaded, MB", "loaded.rss_mb@online", Side.AT_MOST, 450),
    Target("idle CPU, % of one core", "idle.cpu_percent", Side.AT_MOST, 5),
)


def judge(target: Target, figures: Figures) -> Verdict:
    """Compare one target with the figures of a run, ``system → metric → figure``."""
    mine = figures.get(SUBJECT, {}).get(target.key)
    if target.against is None or mine is None:
        return Verdict(target, mine)
    other = figures.get(target.against, {}).get(target.other_key or target.key)
    return Verdict(target, mine / other if other else None)

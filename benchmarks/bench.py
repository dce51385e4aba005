"""One system under measurement: its clients, its usage, and what has been found out about it so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.clients import Client, clients
from benchmarks.dataset import BUCKETS, Dataset
from benchmarks.processes import Usage, usage_of
from benchmarks.settings import Settings
from benchmarks.systems import Place, Server, System

#: The collection that is searched.
MAIN = "bench_main"
#: The collection that some measures fill and drop.
OTHER = "bench_other"
#: Keys of rows added after the main insert start here.
ADDED_KEYS = 1_000_000_000

Values = dict[str, float]


@dataclass
class Bench:
    """The arguments of every measure.

    Attributes:
        system: adapter of the system under test.
        server: the same, when it is a server.
        place: its folders.
        data: the run's vectors.
        settings: the run's numbers.
        main: the client process of the system; measures with several clients start more.
        values: metrics of this system that earlier measures of the run found.
    """

    system: System
    server: Server | None
    place: Place
    data: Dataset
    settings: Settings
    main: Client
    values: Values = field(default_factory=dict)

    def the_server(self) -> Server:
        """The server; only asked for by measures that need one.

        Raises:
            RuntimeError: the system is no server.
        """
        if self.server is None:
            raise RuntimeError(f"{self.system.name} is not a server")
        return self.server

    def usage(self, workers: Sequence[Client]) -> Usage:
        """CPU and memory of the server, or of the workers where they are the system themselves."""
        if self.server is not None:
            return self.server.usage()
        return usage_of([worker.pid for worker in workers], lambda _: "server")

    @contextmanager
    def more_clients(self, count: int, *, connected: bool = True) -> Iterator[list[Client]]:
        """Start `count` further clients for the length of a ``with``."""
        with clients(
            self.system,
            count,
            self.place.client_log,
            self.settings.call_timeout_s,
            connected=connected and self.server is not None,
        ) as workers:
            yield workers

    def truth(self, queries: int, bucket_below: int | None = None) -> list[list[int]]:
        """Exact answers for the first `queries` test vectors."""
        below = BUCKETS if bucket_below is None else bucket_below
        return self.data.nearest(min(queries, len(self.data.test)), self.settings.top_k, below)


def cpu_metrics(name: str, before: Usage, after: Usage, scale: float) -> Values:
    """CPU used between two looks, in ms times `scale`: the sum as `name`, each role as ``name@role``.

    Roles are distinguished only where there is more than one.
    """
    used = {role: (after.cpu_s[role] - before.cpu_s.get(role, 0.0)) * 1e3 * scale for role in after.cpu_s}
    return {name: sum(used.values()), **_by_role(name, used)}


def memory_metrics(name: str, usage: Usage) -> Values:
    """Resident megabytes: the sum as `name`, each role as ``name@role``."""
    return {name: usage.total_rss_mb, **_by_role(name, usage.rss_mb)}


def _by_role(name: str, figures: Mapping[str, float]) -> Values:
    return {f"{name}@{role}": figure for role, figure in figures.items()} if len(figures) > 1 else {}

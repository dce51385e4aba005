"""A server of two serving processes loses them under load: nothing acknowledged is lost, doubled, or back.

Writers and readers have connections to both processes of the port. Each writer reads its own rows with Strong
consistency after each request, from one process or the other, and looks for some of them by their vectors, so
a wrong answer is found while processes die and not only at the end. One after the other a `kill -9` ends the
further serving process, the pipeline process, the main process, and all of them at once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

import grpc
import psutil
import pytest
from crash_load import KEYS_PER_WRITER, Flusher, Load, Writer, create, vector_of
from harness import Server, until
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.kills]

SETTINGS = {"proxy.processes": 2, "indexcoord.index_rows_min": 200}
COLLECTIONS = {"one_shard": 1, "two_shards": 2}
VICTIMS = ("serving", "pipeline", "main", "all")
OWN_CONNECTION = {"dedicated": True, "grpc_options": {"grpc.use_local_subchannel_pool": 1}}
REQUESTS_BEFORE, REQUESTS_AFTER = (40, 90), 40
READ_DEADLINE_S = 30.0


class Witness(Writer):
    """A writer that reads what it has written. ``own``: the client it writes with; ``readers``: those it
    reads with. ``reads`` counts the answers that were compared, ``wrong`` has those that differed.
    """

    own: MilvusClient
    readers: Sequence[MilvusClient] = ()
    reads = 0

    def __init__(self, number: int, seed: int, collection: str, shards: int) -> None:
        super().__init__(number, seed, collection, shards)
        self.wrong: list[str] = []
        self._choice = random.Random(f"reads {seed}/{number}")

    def work(self, client: MilvusClient, stop: threading.Event, *, until_error: bool) -> None:
        super().work(self.own, stop, until_error=until_error)

    def _request(self, what: str, wanted: dict[int, int | None], send: Callable[[], object]) -> bool:
        ended_well = super()._request(what, wanted, send)
        client = self._choice.choice(self.readers)
        try:
            self._read(client, what)
            self._search(client, what)
        except (MilvusException, grpc.RpcError):
            return ended_well  # the process is being killed
        self.reads += 1
        return ended_well

    def _read(self, client: MilvusClient, after: str) -> None:
        """Compare all rows but those of requests without an answer."""
        first = self.number * KEYS_PER_WRITER
        rows = client.query(
            self.collection,
            filter=f"{first} <= key < {first + KEYS_PER_WRITER}",
            output_fields=["version"],
            consistency_level="Strong",
            **self.options,
        )
        doubtful = {key for request in self.book.doubtful for key in request.outcomes}
        found = {row["key"]: row["version"] for row in rows}
        if len(found) < len(rows):
            self.wrong.append(f"after {after}: {len(rows) - len(found)} keys twice")
        known = {key: version for key, version in found.items() if key not in doubtful}
        if known != self.book.certain:
            differing = known.items() ^ self.book.certain.items()
            self.wrong.append(f"after {after}: {len(differing)} differences, such as {sorted(differing)[:5]}")

    def _search(self, client: MilvusClient, after: str) -> None:
        keys = self._choice.sample(sorted(self.book.certain), min(3, len(self.book.certain)))
        if keys:
            vectors = [vector_of(key, self.book.certain[key]) for key in keys]
            params = {"params": {"ef": 200}}
            hits = client.search(
                self.collection,
                vectors,
                limit=1,
                search_params=params,
                consistency_level="Strong",
                **self.options,
            )
            if (nearest := [of[0]["key"] for of in hits if of]) != keys:
                self.wrong.append(f"after {after}: searched for {keys}, found {nearest}")


def serving_process(server: Server) -> psutil.Process | None:
    """The one next to the main one, when reads of both collections are answered there."""
    (state,) = server.status()["serving"]
    return psutil.Process(state["pid"]) if state["pid"] and state["collections"] == len(COLLECTIONS) else None


def clients_of(server: Server, *processes: psutil.Process) -> list[MilvusClient]:
    """A client with a connection of its own to each process. The kernel chooses, so some are made in vain."""
    found: dict[int, MilvusClient] = {}

    def reached() -> bool:
        before = {p.pid: connections(server, p) for p in processes}
        client = server.client(**OWN_CONNECTION)
        for process in processes:
            if connections(server, process) > before[process.pid]:
                found.setdefault(process.pid, client)
        return len(found) == len(processes)

    until(reached, READ_DEADLINE_S, "both processes have a connection")
    return [found[process.pid] for process in processes]


def connections(server: Server, process: psutil.Process) -> int:
    port = int(server.address.rpartition(":")[2])
    ends = process.net_connections("tcp")
    return sum(c.laddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in ends)


def test_acknowledged_writes_survive_the_death_of_each_process(new_server: Callable[..., Server]) -> None:
    chance = random.Random(20)
    server = new_server(SETTINGS).start()
    for name, shards in COLLECTIONS.items():
        create(server.client(), name, shards=shards)
    load = Load(20, COLLECTIONS, make=Witness)
    server.wait_for_spark()
    for victim in VICTIMS:
        kill_under_load(server, load, victim, chance)
        load.check(server.client())
        assert [wrong for writer in load.writers for wrong in writer.wrong] == []
    second = until(lambda: serving_process(server), READ_DEADLINE_S, "the copy is read")
    for client in clients_of(server, psutil.Process(server.pid), second):
        load.check(client)
    assert min(writer.reads for writer in load.writers) > 20
    server.stop()


def kill_under_load(server: Server, load: Load, victim: str, chance: random.Random) -> None:
    second = until(lambda: serving_process(server), READ_DEADLINE_S, "the copy is read")
    clients = clients_of(server, psutil.Process(server.pid), second)
    for number, writer in enumerate(load.writers):
        writer.own, writer.readers = clients[number % 2], clients
    flusher = Flusher(server.client(), COLLECTIONS, random.Random(chance.random()))
    load.begin(clients[0], until_error=victim in ("main", "all"))
    try:
        load.wait_for(chance.randint(*REQUESTS_BEFORE))
        if victim == "serving":
            second.kill()
        elif victim == "pipeline":
            server.kill_pipeline()
        elif victim == "main":
            server.kill()
        else:
            server.kill_both()
        if server.is_running:
            load.wait_for(REQUESTS_AFTER)
    finally:
        load.end()
        flusher.stop()
    if victim == "pipeline":
        assert load.errors() == [], "writes go on while the pipeline is away"
    load.errors()
    if not server.is_running:
        server.start()

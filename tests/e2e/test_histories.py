"""The histories of real clients are linearizable while processes are killed.

Client processes write and read registers (rows of a few keys) with Strong consistency through two proxies,
while rows are flushed and handed off, processes are killed and started again, and roles are restarted. The
recorded histories of all clients together must be explained by some order (`elanus.sim.linear`).

CI records one history with `DISASTERS` of them; ``make histories`` takes more: ``HISTORY_DISASTERS=50``,
``HISTORY_SEEDS=1,2,3``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient, MilvusException

from elanus.devcluster.process import free_ports
from elanus.sim.linear import Operation, unexplained

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.kills]

DISASTERS = int(os.environ.get("HISTORY_DISASTERS", "5"))
SEEDS = [int(seed) for seed in os.environ.get("HISTORY_SEEDS", "1").split(",")]
PROGRAM = Path(__file__).with_name("history_client.py")
NAME = "registers"
CLIENTS = 4
KEYS = 6
PAUSE_S = (1.0, 3.0)
"""Between a disaster's end and the next."""
BEGINS_IN_S = 120.0
ENDS_IN_S = 60.0
OPERATIONS_MIN = 400
KILLED = ("online", "pipeline", "both")
RESTARTED = ("rootcoord", "datacoord", "querynode", "proxy", "proxy-2")


@pytest.mark.timeout(200 + 40 * DISASTERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_clients_saw_has_an_order(seed: int, new_server: Callable[..., Server]) -> None:
    server = new_server({"proxy.count": 2, "proxy.port": free_ports(2)}).start()
    create(server.client())
    with recording(server) as histories, flushing(server.client()):
        server.wait_for_spark()
        strike(server, random.Random(seed))
    operations = [operation for history in histories for operation in history()]
    answered = [o for o in operations if o.ended is not None]
    assert len(answered) >= OPERATIONS_MIN, "too little was recorded to judge"
    assert unexplained(operations) is None
    last = max(answered, key=lambda o: (o.reads and o.value is not None, o.began))
    planted = replace(last, began=last.ended + 1, ended=last.ended + 2, value=-1)  # type: ignore[operator]
    assert unexplained([*operations, planted]) == planted, "a value that nobody wrote was not found"


def create(client: MilvusClient) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("value", DataType.INT64)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    index = MilvusClient.prepare_index_params()
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection(NAME, schema=schema, index_params=index, num_shards=2)


@contextmanager
def recording(server: Server) -> Iterator[list[Callable[[], list[Operation]]]]:
    """Client processes at work during the block; afterwards each of the calls gives one's history."""
    with ExitStack() as stack:
        clients = []
        histories: list[Callable[[], list[Operation]]] = []
        for number in range(1, CLIENTS + 1):
            file = server.data_dir.with_name(f"history-{number}")
            output = stack.enter_context(file.open("wb"))
            uri = server.uris[number % 2]
            command = [sys.executable, str(PROGRAM), uri, NAME, str(number), str(KEYS)]
            client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)
            clients.append(stack.enter_context(client))  # left, it closes the input, and the process ends
            histories.append(lambda file=file: read_history(file))  # type: ignore[misc]
        until(lambda: all(history() for history in histories), BEGINS_IN_S, "every client is at work")
        yield histories
        for client in clients:
            assert client.poll() is None, f"a client ended with exit code {client.returncode}"
            assert client.stdin is not None
            client.stdin.close()
        for client in clients:
            assert client.wait(ENDS_IN_S) == 0


def read_history(file: Path) -> list[Operation]:
    whole = file.read_text().rpartition("\n")[0]
    return [Operation(*json.loads(line)) for line in whole.splitlines()]


@contextmanager
def flushing(client: MilvusClient) -> Iterator[None]:
    """Flush again and again, so that rows move to files while they are read."""
    stop = threading.Event()

    def flush() -> None:
        while not stop.wait(0.5):
            try:
                client.flush(NAME, timeout=5, retry_times=0)
            except MilvusException:
                continue  # killed, or not flushed in time

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(ENDS_IN_S)
    assert not thread.is_alive(), "a flush did not end"


def strike(server: Server, chance: random.Random) -> None:
    """One disaster after the other; at the end the server runs."""
    for victim in victims(chance):
        time.sleep(chance.uniform(*PAUSE_S))  # the load goes on; nothing is waited for
        if victim == "pipeline":
            server.kill_pipeline()
        elif victim in KILLED:
            server.wait_for_spark()  # a Java that has just begun may take long to notice that it is alone
            server.kill() if victim == "online" else server.kill_both()
            server.start()
        else:
            server.restart_role(victim)
    time.sleep(PAUSE_S[0])


def victims(chance: random.Random) -> list[str]:
    """Both processes are killed, and roles restarted, in any order; then whatever chance brings."""
    first = ["online", *chance.sample(RESTARTED, 3)]
    chance.shuffle(first)
    return [*first, "pipeline", *chance.choices((*KILLED, *RESTARTED), k=DISASTERS)][:DISASTERS]

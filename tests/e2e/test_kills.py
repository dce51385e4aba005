"""Processes are killed at any moment: every acknowledged row is there, exactly once.

Each seed is a run of its own: writers on a collection of one shard and one of two, flushes at the same time,
and after a seeded number of acknowledged requests a `kill -9` of the online process, the pipeline
process, or both. A server that starts after that may be killed again while it recovers. `make test` runs the
first seed, `make test-long` all `SEEDS`; ``KILL_SEEDS=20`` makes these twenty, ``KILL_SEEDS=7,9`` those two.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from crash_load import FLUSHED_DEADLINE_S, Flusher, Load, create
from harness import Server, until
from pymilvus import MilvusClient

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.kills]

SEEDS = 3
ROUNDS = 3
REQUESTS_BEFORE_A_KILL = (10, 250)
KILLED_STARTS_MAX = 2
INTO_A_START_S = (0.1, 4.0)
"""From before the data directory is locked to after the first answers, on a busy machine too."""
COLLECTIONS = {"one_shard": 1, "two_shards": 2}
SMALL = {"indexcoord.index_rows_min": 200}


def seeds() -> list[Any]:
    asked = os.environ.get("KILL_SEEDS", str(SEEDS))
    numbers = [int(seed) for seed in asked.split(",")] if "," in asked else list(range(int(asked)))
    return [pytest.param(seed, marks=() if n == 0 else pytest.mark.long) for n, seed in enumerate(numbers)]


@pytest.mark.parametrize("seed", seeds())
def test_acknowledged_writes_survive_kills(seed: int, new_server: Callable[..., Server]) -> None:
    chance = random.Random(seed)
    server = new_server(SMALL).start()
    load = Load(seed, COLLECTIONS)
    for name, shards in COLLECTIONS.items():
        create(server.client(), name, shards=shards)
    for _ in range(ROUNDS):
        if chance.random() < 0.6:
            server.wait_for_spark()  # else the kill meets a pipeline that is still coming up
        kill_under_load(server, load, chance)
        load.check(server.client())
    flush_everything(server.client())
    load.check(server.client())
    server.restart()
    load.check(server.client())


def kill_under_load(server: Server, load: Load, chance: random.Random) -> None:
    """One round: load, a kill in the midst of it, and a server that runs again."""
    victim = chance.choice(["online", "pipeline", "both"])
    client = server.client()
    flusher = Flusher(client, COLLECTIONS, random.Random(chance.random()))
    load.begin(client, until_error=victim != "pipeline")
    try:
        load.wait_for(chance.randint(*REQUESTS_BEFORE_A_KILL))
        if victim == "online":
            server.kill()
        elif victim == "both":
            server.kill_both()
        else:
            server.kill_pipeline()
            load.wait_for(50)
    finally:
        load.end()
        flusher.stop()
    errors = load.errors()
    if victim == "pipeline":
        assert errors == [], "writes go on while the pipeline is away"
        return
    for _ in range(chance.randint(0, KILLED_STARTS_MAX)):
        server.spawn()
        time.sleep(chance.uniform(*INTO_A_START_S))
        server.kill()  # while it recovers from the kill before
    server.start()


def flush_everything(client: MilvusClient) -> None:
    """Until every row is in a flushed segment and every segment is served from its files."""
    for name in COLLECTIONS:
        client.flush(name)
        states = {segment.state_name for segment in client.list_persistent_segments(name)}
        assert states <= {"Flushed"}
        until(
            lambda name=name: {s.state_name for s in client.list_loaded_segments(name)} <= {"Sealed"},
            FLUSHED_DEADLINE_S,
            f"{name} is served from sealed segments",
        )

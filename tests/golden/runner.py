"""Runs a golden script: the whole system (`elanus.sim.system`) on virtual time, driven line by line.

A script is a header of comments that says why it is there, and commands. The trace of each is below
it, indented. Nothing goes wrong but what the script says. After each command a second passes, in which
everything that follows from it is written; after one that begins with ``&``, only a moment.

=================================  ====================================================================
``create NAME SHARDS``             make, index and load a collection (written briefly)
``A: insert NAME 1=10 2=20``       a client's write through proxy-1; ``A`` names it. Also ``upsert``
``A: delete NAME 1 2``             by key; ``A: partition NAME P`` and ``A: drop NAME [P]`` define
``A: query NAME LEVEL``            all rows (strong, bounded, session, eventually)
``A: again B``                     the query B once more, pinned to its moment
``... via proxy-2``                any of these through the other proxy
``flush NAME``                     seal and flush
``hold ROLE``, ``let go ROLE``     what it appends does not reach the log; now it does, dead or not
``crash ROLE``, ``restart ROLE``   also ``crash pipeline``, ``stall pipeline SECONDS``, ``lose power``
``part ROLE ROLE SECONDS``         no call passes between the two
``fault KIND [TARGET [AMOUNT]]``   waits for its moment, as in scenarios; ``-`` stands for no target
``step clock MILLISECONDS``        wall clocks jump
``segments NAME``                  what the query node serves
``wait SECONDS``                   let time pass
=================================  ====================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import structlog
from story import Story

from elanus.api.rootcoord import NewCollection
from elanus.core.consistency import WIRE_EVENTUALLY, ConsistencyLevel, ReadConsistency
from elanus.core.errors import ElanusError
from elanus.core.names import DEFAULT_DATABASE, DEFAULT_PARTITION
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.query import Query
from elanus.sim.chance import Chance
from elanus.sim.client_collections import rows_of, schema_of
from elanus.sim.client_verbs import ClientVerbs
from elanus.sim.judge import Judge
from elanus.sim.loop import VirtualLoop
from elanus.sim.scenario import Fault, FaultKind, Scenario
from elanus.sim.system import System
from elanus.sim.trace import Trace
from elanus.sim.truth import KEY, VALUE
from elanus.sim.workload import Client

_SETTLE_S = 1.0
_SOON_S = 0.1
_INDENT = "    "
_WRITTEN = ("CRASH", "POWER LOST", "STALL", "goes on")


def run_script(script: str) -> str:
    """The script with its trace. Raises `ValueError` for a line that is no command."""
    with tempfile.TemporaryDirectory() as scratch, _quiet():
        run = _Run(Path(scratch))
        with asyncio.Runner(loop_factory=lambda: run.loop) as runner:
            return runner.run(run.whole(script))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


class _Trace(Trace):
    """``write`` is called with deaths, and with zombies."""

    def __init__(self, now_s: Callable[[], float], write: Callable[[str], None]) -> None:
        super().__init__(now_s)
        self._say = write

    def note(self, text: str, keys: Any = ()) -> None:
        super().note(text, keys)
        if any(word in text for word in _WRITTEN):
            self._say(" ".join(word.partition("#")[0] for word in text.split(" ")))


class _TracedSystem(System):
    """``story`` sees every entry and every record when the checks have seen them."""

    compacts_without_being_asked = False

    def __init__(self, story: Story, *parts: Any) -> None:
        self._story = story
        super().__init__(*parts)

    def _guarded(self, observe: Callable[..., None]) -> Callable[..., None]:
        checked = super()._guarded(observe)

        def recorded(*args: Any) -> None:
            checked(*args)
            (self._story.entry if len(args) == 2 else self._story.record)(*args)

        return recorded


class _Run:
    def __init__(self, scratch: Path) -> None:
        self.loop = VirtualLoop()
        self._lines: list[str] = []
        self._story = Story(self._add_line)
        self._trace = _Trace(self.loop.time, self._add_line)
        self._chance = Chance(Scenario(0, 0.0, (), ()), self.loop.time, self._trace.met)
        self._scratch = scratch
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: dict[str, Timestamp] = {}
        self._is_written = True
        self._settle_s = _SETTLE_S

    def _add_line(self, line: str) -> None:
        if self._is_written:
            self._lines.append(_INDENT + line)

    async def whole(self, script: str) -> str:
        self._is_written = False
        system = self._system = _TracedSystem(self._story, self._chance, self._trace, self._scratch)
        self._keeper = Client(-1, system, Judge(system.truth, system.imports), self._chance.stream("keeper"))
        await system.start()
        await system.all_up()
        await asyncio.sleep(_SETTLE_S)
        self._is_written = True
        for line in script.splitlines():
            if line.startswith(_INDENT):
                continue  # the trace of an earlier run
            self._lines.append(line)
            if line and not line.startswith("#"):
                self._settle_s = _SOON_S if line.startswith("& ") else _SETTLE_S
                await self._carry_out(line.removeprefix("& "))
        if system.failure.done():
            raise system.failure.exception() or AssertionError
        await self._end()
        return "\n".join(self._lines) + "\n"

    async def _end(self) -> None:
        this = asyncio.current_task()
        self._is_written = False
        for _ in range(3):
            left = [task for task in asyncio.all_tasks() if task is not this]
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=1.0)

    async def _carry_out(self, line: str) -> None:
        name, colon, rest = line.partition(": ")
        if colon:
            self._tasks.append(asyncio.create_task(self._client(name, *rest.split())))
            await asyncio.sleep(self._settle_s)
            return
        words = line.split()
        match words:
            case ["create", name, shards]:
                await self._create(name, int(shards))
            case ["flush", name]:
                await self._keeper.operate("flush", name)
            case ["hold", role]:
                self._system.hold_appends(role)
            case ["let", "go", role]:
                self._system.log.let_go(role)
            case ["crash", role]:
                self._system.crash(role)
            case ["restart", role]:
                await self._system.restart(role)
            case ["stall", "pipeline", seconds]:
                self._system.stall("pipeline", float(seconds))
            case ["lose", "power"]:
                self._system.lose_power()
            case ["part", one, other, seconds]:
                self._system.network.part(frozenset((one, other)), float(seconds))
            case ["fault", *words]:
                self._arm(*" ".join(words).rsplit(maxsplit=2))
            case ["step", "clock", milliseconds]:
                self._system.step_clocks(int(milliseconds))
            case ["segments", _]:
                await self._write_segments()
            case ["wait", seconds]:
                await asyncio.sleep(float(seconds) - _SETTLE_S)
            case _:
                raise ValueError(f"no command: {line}")
        await asyncio.sleep(self._settle_s)

    def _arm(self, kind: str, target: str, amount: str) -> None:
        fault = Fault(self.loop.time(), FaultKind(kind), "" if target == "-" else target, float(amount))
        self._chance.arm(fault)

    # clients

    async def _client(self, name: str, verb: str, *words: str) -> None:
        proxy = words[-1] if words[-2:-1] == ("via",) else "proxy-1"
        words = words[:-2] if words[-2:-1] == ("via",) else words
        try:
            answer = await self._system.ask(
                proxy, verb, lambda verbs: getattr(self, f"_{verb}")(name, verbs, *words)
            )
        except ElanusError as error:
            answer = f"{type(error).__name__}"
        self._add_line(f"{name}: {answer}")

    async def _insert(self, name: str, verbs: ClientVerbs, collection: str, *rows: str) -> str:
        return await self._write(verbs, collection, rows, replaces=False)

    async def _upsert(self, name: str, verbs: ClientVerbs, collection: str, *rows: str) -> str:
        return await self._write(verbs, collection, rows, replaces=True)

    async def _write(
        self, verbs: ClientVerbs, collection: str, rows: tuple[str, ...], *, replaces: bool
    ) -> str:
        partition = rows[0] if "=" not in rows[0] else DEFAULT_PARTITION
        pairs = [tuple(map(int, row.split("="))) for row in rows if "=" in row]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        _, ts = await verbs.write(
            collection, partition, lambda schema: rows_of(keys, values, schema), replaces=replaces
        )
        return f"{self._story.writes.of(ts)} is acknowledged"

    async def _delete(self, name: str, verbs: ClientVerbs, collection: str, *keys: str) -> str:
        _, ts, _ = await verbs.delete(collection, f"{KEY} in [{', '.join(keys)}]")
        return f"{self._story.writes.of(ts)} is acknowledged"

    async def _query(self, name: str, verbs: ClientVerbs, collection: str, level: str) -> str:
        return await self._read(
            name, verbs, collection, ReadConsistency(ConsistencyLevel[level.upper()], WIRE_EVENTUALLY)
        )

    async def _again(self, name: str, verbs: ClientVerbs, earlier: str, collection: str) -> str:
        pinned = ReadConsistency(None, self._answers[earlier], pinned=True)
        return await self._read(name, verbs, collection, pinned)

    async def _read(
        self, name: str, verbs: ClientVerbs, collection: str, consistency: ReadConsistency
    ) -> str:
        _, result = await verbs.query(
            collection,
            lambda cached: Query(cached, (), f"{KEY} >= 0", (KEY, VALUE), None, 0, consistency),
        )
        self._answers[name] = result.ts
        keys, values = (result.fields[column].to_pylist() for column in (KEY, VALUE))
        rows = sorted(zip(keys, values, strict=True))
        return "sees " + (" ".join(f"{k}={v}" for k, v in rows) or "no rows")

    async def _partition(self, name: str, verbs: ClientVerbs, collection: str, partition: str) -> str:
        root = self._system.roles_of_clients.root
        await verbs.define(
            "partition", lambda: root.create_partition(DEFAULT_DATABASE, collection, partition)
        )
        return "done"

    async def _drop(self, name: str, verbs: ClientVerbs, collection: str, partition: str = "") -> str:
        root = self._system.roles_of_clients.root
        if partition:
            work = lambda: root.drop_partition(DEFAULT_DATABASE, collection, partition)  # noqa: E731
        else:
            work = lambda: root.drop_collection(DEFAULT_DATABASE, collection)  # noqa: E731
        await verbs.define("drop", work)
        return "done"

    # the rest

    async def _create(self, name: str, shards: int) -> None:
        """Written as the vchannels it has, and nothing else."""
        self._is_written = False
        root = self._system.roles_of_clients.root
        new = NewCollection(DEFAULT_DATABASE, schema_of(name), shards, ConsistencyLevel.BOUNDED, {})
        await root.create_collection(new)
        for step in ("index", "load"):
            await self._keeper.operate(step, name)
        found = await root.describe_collection(DEFAULT_DATABASE, name)
        await asyncio.sleep(_SETTLE_S)
        self._is_written = True
        for vchannel in found.vchannels:
            self._add_line(f"{name} has {self._story.of_vchannel(vchannel)}")

    async def _write_segments(self) -> None:
        (node,) = self._system.query_nodes()
        for segment in sorted((await node.status()).segments, key=lambda s: s.segment_id):
            kind = "growing" if not segment.sealed else "indexed" if segment.index_ids else "sealed"
            self._add_line(
                f"serves {self._story.segments.of(segment.segment_id)}, {kind}, {segment.rows} rows"
            )

"""The serving processes of a server, from the main process's side: started, watched, restarted, ended.

A process joins the members when it answers, before it listens on the port for clients: from its first read
on, the coordinators notify it. It leaves them after its end. One that does not answer is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from pydantic import SecretStr

from elanus.api.serving import ServingFacts, ServingObserved, ServingProcessApi
from elanus.core.errors import ElanusError, Unavailable
from elanus.core.ids import NodeID
from elanus.meta.tasks import cancel_and_wait
from elanus.rpc.carrier import RpcChannel
from elanus.server.data_dir import DataDir
from elanus.server.serving.members import Ending, Member, Members
from elanus.server.settings import Settings
from elanus.server.status import ServingStatus

_FIRST_ID = 1_000_000_000
"""Sessions have lower ids."""
_START_S = 60.0
_LOOK_S = 1.0
_SILENCE_MAX_S = 10.0
"""Less than a change of definitions waits for its proxies (`elanus.api.cache_invalidation`)."""
_ENDING_S = 0.5
"""A call to a process that ends fails a little before its end is known."""
_STOP_GRACE_S = 10.0
_OBSERVE_S = 2.0
"""A status is not to wait longer for what one process has observed."""
_BACKOFF_S = 0.5
_BACKOFF_MAX_S = 15.0
_STEADY_S = 60.0
"""A process that ran this long resets the back-off."""
_log = structlog.get_logger("serving")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Have a process end by closing its standard input, and kill it if it does not."""
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_GRACE_S):
            await process.wait()
    except TimeoutError:
        _log.warning("serving process killed: it did not end in time", pid=process.pid)
        process.kill()
        await process.wait()


class _Process:
    """Implements `elanus.server.serving.members.Ending`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ended: asyncio.Future[int] = asyncio.ensure_future(process.wait())

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await asyncio.wait([self.ended])


@dataclass(slots=True)
class _Slot:
    """One of the processes that should run. ``reads_before``: of those that ran here earlier."""

    number: int
    pid: int | None = None
    restarts: int = 0
    facts: ServingFacts | None = None
    reads_before: int = 0
    control: ServingProcessApi | None = None


class ServingPool:
    """The processes in addition to this one.

    ``online``: the address of the coordinators; ``front``: that of the local front, to which calls are passed
    on. ``answered(reads)`` is called with the reads that they have answered since the call before.
    """

    def __init__(
        self,
        settings: Settings,
        data_dir: DataDir,
        members: Members,
        online: str,
        front: str,
        answered: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._members = members
        self._arguments = (f"--online={online}", f"--front={front}")
        self._answered = answered
        self._slots = [_Slot(n) for n in range(2, settings.proxy.processes_wanted + 1)]
        self._ids = itertools.count(_FIRST_ID)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, port: int) -> None:
        """``port``: where the main process listens."""
        self._tasks = [
            asyncio.create_task(self._keep(slot, port), name=f"serving {slot.number}") for slot in self._slots
        ]

    async def stop(self) -> None:
        await cancel_and_wait(*self._tasks)

    def statuses(self) -> list[ServingStatus]:
        return [_status(slot) for slot in self._slots]

    async def observed(self) -> list[ServingObserved]:
        """Return what the processes that run have observed. One that does not answer is left out."""
        asked = [_observed(slot.number, slot.control) for slot in self._slots if slot.control is not None]
        return [one for one in await asyncio.gather(*asked) if one is not None]

    async def _keep(self, slot: _Slot, port: int) -> None:
        loop = asyncio.get_running_loop()
        wait_s = _BACKOFF_S
        while True:
            started_s = loop.time()
            try:
                await self._run(slot, port)
            except (ElanusError, OSError) as error:
                _log.warning("serving process not running", number=slot.number, error=str(error))
            if loop.time() - started_s >= _STEADY_S:
                wait_s = _BACKOFF_S
            slot.restarts += 1
            _log.warning("serving process ended; restarting it", number=slot.number, wait_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _BACKOFF_MAX_S)

    async def _run(self, slot: _Slot, port: int) -> None:
        """Run one process until it ends or does not answer any more."""
        address = self._data_dir.socket(f"serving-{slot.number}")
        arguments = (*self._arguments, f"--address={address}", f"--number={slot.number}")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "elanus", "serving", *arguments, stdin=asyncio.subprocess.PIPE
        )
        process, channel = _Process(child), RpcChannel(address)
        slot.pid = child.pid
        node_id = NodeID(next(self._ids))
        try:
            assert child.stdin is not None
            child.stdin.write(settings_line(self._settings, self._data_dir.root))
            await child.stdin.drain()
            await _answers(process, channel)
            self._members.join(node_id, Member(process, channel))
            control = channel.client(ServingProcessApi, _SILENCE_MAX_S)
            await control.open(port)
            slot.control = control
            await self._watch(slot, process, control)
        finally:
            slot.control = None
            await _end(child)
            slot.pid, slot.facts = None, None
            slot.reads_before = 0
            if node_id in self._members:
                self._members.leave(node_id)
            await channel.close()

    async def _watch(self, slot: _Slot, process: Ending, control: ServingProcessApi) -> None:
        """Return when the process has ended. One that does not answer is killed at once: changes that have to
        be in force everywhere wait for its end, and not for much longer than it may be silent."""
        try:
            while not process.ended.done():
                self._note(slot, await control.facts())
                await asyncio.wait([process.ended], timeout=_LOOK_S)
        except ElanusError as error:
            await asyncio.wait([process.ended], timeout=_ENDING_S)
            if not process.ended.done():
                _log.warning(
                    "serving process killed: it does not answer", number=slot.number, error=error.message
                )
                await process.kill()

    def _note(self, slot: _Slot, facts: ServingFacts) -> None:
        slot.facts = facts
        self._answered(facts.reads - slot.reads_before)
        slot.reads_before = facts.reads


async def _answers(process: _Process, channel: RpcChannel) -> None:
    """Return when the process answers. Raises `Unavailable` if it ends before, and `DeadlineExceeded`."""
    ready = asyncio.ensure_future(channel.ready(_START_S))
    try:
        await asyncio.wait((ready, process.ended), return_when=asyncio.FIRST_COMPLETED)
        if process.ended.done():
            raise Unavailable(f"it ended at its start with code {process.ended.result()}: see its messages")
        ready.result()
    finally:
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)


async def _observed(number: int, control: ServingProcessApi) -> ServingObserved | None:
    try:
        async with asyncio.timeout(_OBSERVE_S):
            return await control.observed()
    except (ElanusError, TimeoutError) as error:
        _log.info("serving process not observed", number=number, error=str(error))
        return None


def _status(slot: _Slot) -> ServingStatus:
    facts = slot.facts
    if facts is None:
        return ServingStatus(slot.number, slot.pid, slot.restarts)
    return ServingStatus(
        slot.number,
        slot.pid,
        slot.restarts,
        facts.collections,
        facts.reads,
        facts.passed_on,
        facts.memory_bytes,
        facts.loop_lag_s * 1000,
        facts.slow_requests,
    )


def settings_line(settings: Settings, root: Path) -> bytes:
    """Return all settings as one line of JSON, with their secrets: it is sent through a pipe.

    ``root``: the data directory.
    """
    here: Mapping[str, Any] = settings.model_copy(update={"data_dir": root}).model_dump()
    return json.dumps(here, default=_plain).encode() + b"\n"


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)

"""A scenario: all client operations and all faults of a run, written down beforehand.

A seed is expanded into a scenario (`elanus.sim.plan`), and the scenario is run. So a run that finds something
can be cut down: leave out operations and faults, run what is left, keep what still fails
(`elanus.sim.shrink`). Each operation draws its details from its own number, so leaving one out does not
change the others. A scenario is a JSON file: `elanus sim --replay FILE` runs it.

Faults have a moment in virtual time. Some strike at that moment; the others wait from then on for the next
call, append, job or object of their kind.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from elanus.core.errors import InvalidParameter


class FaultKind(StrEnum):
    """The kinds of faults. The values are readable names, used in reports and scenario files."""

    CRASH = "crash"
    CRASH_SOON = "crash after some steps"
    CRASH_ALL = "crash of all roles"
    CRASH_PIPELINE = "crash of the pipeline"
    STALL_PIPELINE = "stall of the pipeline"
    PAUSE_PIPELINE = "pause of the pipeline"
    RESTART = "restart"
    LOSE_POWER = "power lost"
    STEP_CLOCK = "clock steps"
    SKEW_CLOCK = "clock of one role is off"
    PARTITION = "partition"
    REVOKE_LEASE = "lease revoked"
    REPLACE_ROOT = "rootcoord replaced unnoticed"
    LOSE_CALL = "call lost"
    LOSE_ANSWER = "answer lost"
    DOUBLE_CALL = "call doubled"
    DELAY_CALL = "call late"
    DELAY_ANSWER = "answer late"
    CRASH_CALLER = "crash of a caller"
    CRASH_CALLEE = "crash of a callee"
    PAUSE_CALLEE = "pause of a callee amid a write"
    LOG_FULL = "log full"
    PCHANNEL_FULL = "log full on one pchannel"
    LOG_SLOW = "log slow"
    CRASH_APPENDING = "crash while appending"
    META_SLOW = "metadata slow"
    STORE_FULL = "object store full"
    STORE_AWAY = "object not readable"
    STORE_SLOW = "object store slow"
    NODE_LAGS = "query node lags"
    CHANNELS_LOST = "query channels lost"
    CHANNEL_SLOW = "query channel slow"
    JOB_FAILED = "job failed"
    JOB_TWICE = "job done twice"
    JOB_SLOW = "job slow"


AT_ONCE = frozenset(
    {
        FaultKind.CRASH,
        FaultKind.CRASH_SOON,
        FaultKind.CRASH_ALL,
        FaultKind.CRASH_PIPELINE,
        FaultKind.STALL_PIPELINE,
        FaultKind.PAUSE_PIPELINE,
        FaultKind.RESTART,
        FaultKind.LOSE_POWER,
        FaultKind.STEP_CLOCK,
        FaultKind.SKEW_CLOCK,
        FaultKind.PARTITION,
        FaultKind.REVOKE_LEASE,
        FaultKind.REPLACE_ROOT,
        FaultKind.CHANNELS_LOST,
        FaultKind.PCHANNEL_FULL,
        FaultKind.NODE_LAGS,
    }
)
"""Faults that strike at their moment; all others wait for a call, append, job or object."""

OF_CALLS = frozenset(
    {
        FaultKind.LOSE_CALL,
        FaultKind.LOSE_ANSWER,
        FaultKind.DOUBLE_CALL,
        FaultKind.DELAY_CALL,
        FaultKind.DELAY_ANSWER,
        FaultKind.CRASH_CALLER,
        FaultKind.CRASH_CALLEE,
    }
)
"""Faults that wait for a call, of any method or of a given one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. ``target``: the role or pchannel it strikes, two roles joined by ``|``, or the call it waits
    for ("": any)."""

    at_s: float
    kind: FaultKind
    target: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        what = f"{self.kind} {self.target}".rstrip()
        return f"{self.at_s:9.4f} s  {what}" + (f" ({self.amount:g})" if self.amount else "")


@dataclass(frozen=True, slots=True)
class Operation:
    """A client operation. ``number`` identifies it and seeds its details."""

    at_s: float
    client: int
    kind: str
    collection: str
    number: int

    def __str__(self) -> str:
        return (
            f"{self.at_s:9.4f} s  client {self.client}: {self.kind} {self.collection} (number {self.number})"
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """``seed``: determines what is not written down, such as how long everything takes.

    ``work_s``: when clients stop and faults end. ``power_cut``: whether power is lost once more when
    everything has come to rest. Operations and faults are in order of time.
    """

    seed: int
    work_s: float
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]
    power_cut: bool = True

    def describe(self) -> list[str]:
        """Describe everything that is to happen, in order, for people to read."""
        items: list[Operation | Fault] = [*self.operations, *self.faults]
        lines = sorted(items, key=lambda item: item.at_s)
        end = "then rest, a power cut, and rest again" if self.power_cut else "then rest"
        return [*map(str, lines), f"{self.work_s:9.4f} s  {end}"]

    def without(self, operations: Collection[Operation] = (), faults: Collection[Fault] = ()) -> Scenario:
        """The scenario without these operations and faults."""
        gone_operations, gone_faults = frozenset(operations), frozenset(faults)
        return Scenario(
            self.seed,
            self.work_s,
            tuple(o for o in self.operations if o not in gone_operations),
            tuple(f for f in self.faults if f not in gone_faults),
            self.power_cut,
        )


def save(scenario: Scenario, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(scenario), indent=1) + b"\n")


def load(file: Path) -> Scenario:
    """Read a scenario. Raises `InvalidParameter` for a file that is missing or holds no scenario."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Scenario)
    except OSError as error:
        raise InvalidParameter(f"scenario {file} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise InvalidParameter(f"{file} holds no scenario: {error}") from error

"""Machines of a test's own: network namespaces on a bridge, whose cables can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_SUBNET = "10.213.57"


@dataclass(frozen=True, slots=True)
class Machine:
    """``within``: what a command is put behind to run there."""

    name: str
    address: str
    within: Sequence[str] = ()


LOOPBACK = Machine("", "127.0.0.1")


class Network:
    """A bridge, which is this machine's address ``home`` in the network, and the machines on it.

    Raises `OSError` or `CalledProcessError` where network namespaces cannot be made.
    """

    def __init__(self) -> None:
        self._bridge = f"el{os.getpid()}"
        self._machines: list[Machine] = []
        self.home = Machine("home", f"{_SUBNET}.1")
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.home.address}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
        except BaseException:
            self.close()
            raise

    def add(self) -> Machine:
        number = len(self._machines) + 2
        name = f"{self._bridge}-{number}"
        machine = Machine(name, f"{_SUBNET}.{number}", ("ip", "netns", "exec", name))
        self._machines.append(machine)
        _ip("netns", "add", name)
        _ip("link", "add", _cable(machine), "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", _cable(machine), "master", self._bridge, "up")
        for change in (("link", "set", "lo", "up"), ("link", "set", "eth0", "up")):
            _ip("-n", name, *change)
        _ip("-n", name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        return machine

    def cut(self, machine: Machine) -> None:
        """Nothing reaches it, nothing leaves it; nobody is told."""
        _ip("link", "set", _cable(machine), "down")

    def mend(self, machine: Machine) -> None:
        _ip("link", "set", _cable(machine), "up")

    def slow_down(self, machine: Machine, *, delay_ms: int, loss_percent: int) -> None:
        """What it sends comes late, some of it never. Raises `CalledProcessError` where the kernel cannot."""
        netem = ["netem", "delay", f"{delay_ms}ms", "loss", f"{loss_percent}%"]
        _run(*machine.within, "tc", "qdisc", "add", "dev", "eth0", "root", *netem)

    def close(self) -> None:
        """What runs on the machines must have ended."""
        for machine in self._machines:
            _try("link", "del", _cable(machine))
            _try("netns", "del", machine.name)
        _try("link", "del", self._bridge)


def _cable(machine: Machine) -> str:
    return f"v{machine.name}"[:15]


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _try(*arguments: str) -> None:
    if shutil.which("ip") is not None:
        subprocess.run(["ip", *arguments], capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)

"""Machines of a test's own: network namespaces on a bridge, whose cables can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from cables import Cable

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

    Raises `OSError` or `CalledProcessError` where network namespaces or their devices cannot be made.
    """

    def __init__(self) -> None:
        self._bridge = f"el{os.getpid()}"
        self._machines: list[Machine] = []
        self._cables: dict[Machine, Cable] = {}
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
        near, far = f"{self._bridge}n{number}", f"{self._bridge}f{number}"
        self._cables[machine] = Cable(near, far)
        _ip("link", "set", near, "master", self._bridge, "up")
        _ip("link", "set", far, "netns", name, "name", "eth0")
        for change in (("link", "set", "lo", "up"), ("link", "set", "eth0", "up")):
            _ip("-n", name, *change)
        _ip("-n", name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        return machine

    def cut(self, machine: Machine) -> None:
        """Nothing reaches it, nothing leaves it, and no peer gets an error."""
        self._cables[machine].is_cut = True

    def repair(self, machine: Machine) -> None:
        self._cables[machine].is_cut = False

    def make_worse(self, machine: Machine, *, delay_ms: float, loss_percent: float) -> None:
        """Its packets come late in both directions, and some never."""
        cable = self._cables[machine]
        cable.delay_ms, cable.loss_percent = delay_ms, loss_percent

    def lost_frames(self, machine: Machine) -> int:
        return self._cables[machine].lost_frames

    def close(self) -> None:
        """The programs on the machines must have ended."""
        for cable in self._cables.values():
            cable.close()
        for machine in self._machines:
            _try("netns", "del", machine.name)
        _try("link", "del", self._bridge)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _try(*arguments: str) -> None:
    if shutil.which("ip") is not None:
        subprocess.run(["ip", *arguments], capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)

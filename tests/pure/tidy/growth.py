"""Adding something to a copy of the sources, in the files that the development page lists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src" / "elanus"
PAGE = ROOT / "docs" / "development.md"

_BULLET = re.compile(r"^- `([\w/<>]+\.py)`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """``text`` is inserted behind the first match of ``after``, or replaces it. It may refer to groups."""

    after: str
    text: str
    replaces: bool = False

    def applied(self, source: str) -> str:
        match = re.search(self.after, source, re.MULTILINE)
        assert match is not None, f"no match for {self.after!r}"
        return (
            source[: match.start() if self.replaces else match.end()]
            + match.expand(self.text)
            + source[match.end() :]
        )


Addition = Mapping[str, str | Sequence[Edit]]
"""By path below ``src/elanus``: the edits of a file, or the text of a new one."""


def listed(thing: str) -> list[str]:
    """The files that the development page lists for adding ``thing``, with ``toy`` for ``<name>``."""
    match = re.search(rf"^\*\*{thing}\*\*.*?(?=^\*\*|^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None, f"the page has no list for {thing!r}"
    return [path.replace("<name>", "toy") for path in _BULLET.findall(match[0])]


def copied(addition: Addition, directory: Path, without: Collection[str] = ()) -> Path:
    """A directory with a copy of the sources and this addition, apart from the files ``without``."""
    package = directory / "elanus"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, change in addition.items():
        if path in without:
            continue
        file = package / path
        if isinstance(change, str):
            assert not file.exists(), f"{path} exists"
            file.write_text(change)
            continue
        source = file.read_text()
        for edit in change:
            source = edit.applied(source)
        file.write_text(source)
    return directory


def checked(script: str, sources: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of this directory on a copy of the sources."""
    environment = os.environ | {
        "PYTHONPATH": str(sources),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

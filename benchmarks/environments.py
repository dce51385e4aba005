"""Python environments of the peers, made once under ``.bench/`` and installed from PyPI.

Each peer pins what its release needs; none of it fits into the project's own environment. A stamp holds the
list that an environment was made from, so that it is made again when the list changes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.settings import BENCH_FOLDER

STAMP = "requirements.stamp"


@dataclass(frozen=True)
class Environment:
    """One environment.

    Attributes:
        name: its folder under ``.bench/``.
        requirements: what pip installs.
    """

    name: str
    requirements: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Absolute path of the environment."""
        return (BENCH_FOLDER / self.name).absolute()

    def program(self, name: str) -> str:
        """Path of a program of the environment, such as ``python``."""
        return str(self.folder / "bin" / name)

    def ensure(self) -> None:
        """Make the environment unless it is there.

        Raises:
            RuntimeError: pip failed; the message holds the end of its output.
        """
        wanted = "\n".join(self.requirements)
        stamp = self.folder / STAMP
        if stamp.exists() and stamp.read_text() == wanted:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(self.folder)])
        _run([self.program("python"), "-m", "pip", "install", "--quiet", *self.requirements])
        stamp.write_text(wanted)


MILVUS = Environment(
    "milvus", ("milvus==2.3.5", "pymilvus==2.3.6", "marshmallow<4", "setuptools<70", "numpy<2")
)
MILVUS_LITE = Environment("milvus-lite", ("milvus-lite==3.2.2", "pymilvus==3.0.2"))


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")

"""Environments of clients that are not the project's own, made once below ``.clients/``.

They are made with uv, which takes a tenth of pip's time for the same. The requirements of an environment are
kept in it: when that changes, it is made again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".clients"


def python_environment(name: str, *requirements: str) -> Path:
    """The Python of an environment with these packages and what they depend on."""
    return _python(name, "\n".join(requirements), requirements)


def locked_environment(name: str, lock: Path) -> Path:
    """The Python of an environment with exactly the packages of that file, without their dependencies."""
    return _python(name, lock.read_text(encoding="utf-8"), ("--no-deps", "-r", str(lock)))


def node_environment(name: str, package: str) -> Path:
    """A directory in which Node.js programs find that package (``name@version``)."""
    directory = ENVIRONMENTS / name
    if not _is_made(directory, package):
        options = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--omit=optional")
        # a registry may be slow for a moment, and npm gives up after two further attempts by itself
        patience = ("--loglevel=error", "--fetch-retries=6")
        directory.mkdir(parents=True)
        subprocess.run(["npm", "install", *patience, *options, package], check=True, cwd=directory)
        _remember(directory, package)
    return directory


def own_environment(home: Path) -> dict[str, str]:
    """The variables for a client's process: nothing of the environment the tests run in, files of its own in
    ``home``, and no way to other machines: a request to one fails at once."""
    nowhere = "http://127.0.0.1:9"
    proxies = {"http_proxy": nowhere, "https_proxy": nowhere, "no_proxy": "127.0.0.1,localhost"}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        **proxies,
        **{name.upper(): value for name, value in proxies.items()},
        "HOME": str(home),
        "TMPDIR": str(home),
    }


def _python(name: str, content: str, arguments: Sequence[str]) -> Path:
    directory = ENVIRONMENTS / name
    python = directory / "bin" / "python"
    if not _is_made(directory, content):
        uv = (sys.executable, "-m", "uv", "--quiet")
        subprocess.run([*uv, "venv", "--python", sys.executable, str(directory)], check=True)
        subprocess.run([*uv, "pip", "install", "--python", str(python), *arguments], check=True)
        _remember(directory, content)
    return python


def _is_made(directory: Path, content: str) -> bool:
    """Whether it is complete and of that content. Any other is removed."""
    complete = directory / "complete"
    if complete.exists() and complete.read_text(encoding="utf-8") == content:
        return True
    shutil.rmtree(directory, ignore_errors=True)
    return False


def _remember(directory: Path, content: str) -> None:
    (directory / "complete").write_text(content, encoding="utf-8")

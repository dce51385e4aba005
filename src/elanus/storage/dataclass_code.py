"""Importing many dataclasses in less time: the code of their methods is compiled once per installation.

The decorator ``dataclass`` writes the source of ``__init__``, ``__repr__`` and others, and Python compiles it
whenever a process imports the class: the files of bytecode have the modules and not these methods. A server
has five hundred dataclasses, and compiling their methods was three tenths of the processor time of its
imports. Within `compiled_methods` the compiled code is kept in a file next to the bytecode, under the same
conditions: if the directory can be written and Python may write bytecode there.

A source that the file has not is compiled as ever, and the file is looked up by the whole source. So nothing
depends on which versions of the modules wrote it.
"""

from __future__ import annotations

import dataclasses
import marshal
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any

SOURCES_MAX = 10_000
"""With more sources than this, many of them of former versions, the file begins again with those in use."""


def code_file() -> Path:
    """Return where the code is kept for this release of Python."""
    return Path(cache_from_source(__file__)).with_name(f"dataclass_methods.{sys.implementation.cache_tag}")


@contextmanager
def compiled_methods(file: Path | None = None) -> Iterator[None]:
    """Make dataclasses within, with code from ``file`` where it has it; then add to it what it lacked."""
    file = file or code_file()
    kept = _read(file)
    used: dict[str, CodeType] = {}

    def run(source: str, names: dict[str, Any], made: dict[str, Any]) -> None:
        code = kept.get(source)
        if code is None:
            code = compile(source, "<string>", "exec", dont_inherit=True)
        used[source] = code
        exec(code, names, made)

    # The module finds this ``exec`` before Python's own. A release of Python that uses none is as before.
    vars(dataclasses)["exec"] = run
    try:
        yield
    finally:
        del vars(dataclasses)["exec"]
    if used.keys() - kept.keys() and not sys.dont_write_bytecode:
        _write(file, kept | used if len(kept | used) <= SOURCES_MAX else used)


def _read(file: Path) -> dict[str, CodeType]:
    try:
        data = file.read_bytes()
        if not data.startswith(MAGIC_NUMBER):
            return {}
        kept = marshal.loads(data[len(MAGIC_NUMBER) :])
    except (OSError, EOFError, ValueError, TypeError):
        return {}  # there is none, or it is damaged: it is written again
    return kept if isinstance(kept, dict) else {}


def _write(file: Path, kept: dict[str, CodeType]) -> None:
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(exist_ok=True)
        new.write_bytes(MAGIC_NUMBER + marshal.dumps(kept))
        new.replace(file)
    except OSError:  # as with bytecode: where it cannot be kept, the next start compiles again
        with suppress(OSError):
            new.unlink()

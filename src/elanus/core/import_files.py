"""The names that a client gives to an import: files, patterns of files, and directories.

In a pattern ``*`` and ``?`` stand for characters of one part of a path, and ``**`` for any number of parts. A
name that ends with ``/`` is a directory with everything in it that an import can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from elanus.core.errors import InvalidParameter
from elanus.core.limits import IMPORT_FILES_FOUND_MAX

SUFFIXES = (".parquet", ".json", ".jsonl", ".ndjson", ".csv", ".npy")
REJECTS = "rejects"
"""The directory of the lists of refused rows: nothing there is imported unless it is named."""


def is_pattern(name: str) -> bool:
    """Whether a name stands for any number of files."""
    return "*" in name or "?" in name or name.endswith("/")


def directory_of(pattern: str) -> str:
    """Return the directory that all files of a pattern are in; "" is the import directory itself."""
    parts = pattern.split("/")[:-1]
    fixed = next((n for n, part in enumerate(parts) if is_pattern(part)), len(parts))
    return "/".join(parts[:fixed])


def matching(pattern: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a pattern among ``paths``, sorted by name.

    Raises `InvalidParameter` if there is none, or too many.
    """
    fits = _expression(f"{pattern}**" if pattern.endswith("/") else pattern).fullmatch
    with_rejects = pattern.split("/")[0] == REJECTS
    found = sorted(
        path
        for path in paths
        if fits(path) and path.endswith(SUFFIXES) and not _is_hidden(path, with_rejects=with_rejects)
    )
    if not found:
        raise InvalidParameter(f"no file in the import directory matches {pattern}")
    if len(found) > IMPORT_FILES_FOUND_MAX:
        raise InvalidParameter(
            f"{len(found)} files match {pattern}; at most {IMPORT_FILES_FOUND_MAX} in one import: import "
            "them in several"
        )
    return tuple(found)


def _is_hidden(path: str, *, with_rejects: bool) -> bool:
    parts = path.split("/")
    return any(part.startswith(".") for part in parts) or (parts[0] == REJECTS and not with_rejects)


def _expression(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meant.get(piece, re.escape(piece)) for piece in pieces))

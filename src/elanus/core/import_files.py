"""The names that a client gives to an import: files, patterns of files, and directories.

In a pattern ``*`` and ``?`` stand for characters of one part of a path, and ``**`` for any number of parts. A
name that ends with ``/`` is a directory with everything in it that an import can read. A name that ends with
``.files`` is a list of files: a text with the path of one on each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import ImportRefused, InvalidParameter
from elanus.core.limits import IMPORT_FILES_FOUND_MAX

SUFFIXES = (".parquet", ".json", ".jsonl", ".ndjson", ".csv", ".npy")
REJECTS = "rejects"
"""The directory of the lists of refused rows: nothing there is imported unless it is named."""


LIST_SUFFIX = ".files"
"""The end of the name of a list of files."""
_PATTERN_LENGTH_MAX = 4096
"""As long as the longest path of a file."""


def check_name(name: str) -> None:
    """Check a name that a client gives. Raises `InvalidParameter`, `ImportRefused`."""
    parts = name.removesuffix("/").split("/")
    if not all(parts) or "\0" in name or any(part.startswith(".") for part in parts):
        raise InvalidParameter(
            f"file {name!r}: give a path relative to the import directory (setting imports.root), "
            "whose parts do not begin with a dot"
        )
    if is_pattern(name) and len(name) > _PATTERN_LENGTH_MAX:
        raise InvalidParameter(
            f"the pattern {name[:60]}… has {len(name)} characters; at most {_PATTERN_LENGTH_MAX}: name a "
            f"directory, or a list of files ({LIST_SUFFIX})"
        )
    if not is_pattern(name) and not name.endswith((*SUFFIXES, LIST_SUFFIX)):
        raise ImportRefused(
            f"unexpected file type, files=[{name}]: import {', '.join(SUFFIXES)} files, or a directory "
            "with a / at its end: importing data failed"
        )


def listed(name: str, content: bytes) -> tuple[str, ...]:
    """Return the files of a list.

    Raises `InvalidParameter` if it has none, or a line that is no path of a file, and `ImportRefused` for a
    file that no import can read.
    """
    try:
        files = tuple(content.decode().splitlines())
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"{name} is no list of files in UTF-8: {error}") from None
    if not files:
        raise InvalidParameter(f"{name} names no file: give one path a line")
    for file in files:
        if is_pattern(file) or file.endswith(LIST_SUFFIX):
            raise InvalidParameter(f"{name} has the line {file!r}: a list has paths of files only")
        check_name(file)
    return files


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
    with_rejects = pattern.split("/")[0] == REJECTS
    readable = [
        path for path in paths if path.endswith(SUFFIXES) and not _is_hidden(path, with_rejects=with_rejects)
    ]
    fits = _fits(f"{pattern}**" if pattern.endswith("/") else pattern, readable)
    found = sorted(path for path, is_meant in zip(readable, fits, strict=True) if is_meant)
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


def _fits(pattern: str, paths: Sequence[str]) -> list[bool]:
    """Return which paths a pattern means.

    Arrow matches with RE2, which never backtracks and leaves the interpreter to other threads; Python's own
    would freeze the process over a pattern with many wildcards.
    """
    # A name on disk need not be UTF-8: what is not becomes a question mark.
    texts = pa.array([path.encode(errors="replace") for path in paths], pa.binary()).cast(pa.string())
    fits: list[bool] = pc.match_substring_regex(texts, _expression(pattern)).to_pylist()
    return fits


def _expression(pattern: str) -> str:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.encode(errors="replace").decode())
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return f"(?s)^{''.join(meant.get(piece, re.escape(piece)) for piece in pieces)}$"

"""Settings of Spark in a text, in the form of Spark's own file of defaults: a name and its value a line."""

from __future__ import annotations

import re

_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Names of settings whose values Spark itself does not show, by default."""
_LINE = re.compile(r"(\S+?)(?:\s*[=:]\s*|\s+)(\S.*)")


def parsed(text: str) -> dict[str, str]:
    """Return the settings by name. Empty lines and those that begin with ``#`` are left out.

    Raises `ValueError` for a line that is no setting of Spark.
    """
    settings = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None or not found[1].startswith("spark."):
            raise ValueError(
                f"spark_conf has the line {line!r}: write a name that begins with spark. and a value"
            )
        settings[found[1]] = found[2]
    return settings


def without_secrets(text: str) -> str:
    """Return the text without the lines of secrets, passwords, tokens and access keys."""
    return "".join(line for line in text.splitlines(keepends=True) if not _is_secret(line.strip()))


def _is_secret(line: str) -> bool:
    found = _LINE.fullmatch(line)
    return found is not None and _SECRET.search(found[1]) is not None

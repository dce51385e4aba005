"""Which names are legal, and what a client is told of one that is not.

The texts are those of the reference, which conformance suites look for.
"""

from __future__ import annotations

import re

from elanus.core.errors import InvalidParameter
from elanus.core.limits import NAME_LENGTH_MAX_CHARS

_FIRST = re.compile(r"[A-Za-z_]")
_REST = re.compile(r"[A-Za-z0-9_]*\Z")
_PARTITION = re.compile(r"[A-Za-z0-9_$-]+\Z")


def check_collection_name(name: str) -> str:
    """The name itself. Also for aliases. Raises `InvalidParameter`."""
    return _check(name, "collection")


def check_alias(name: str) -> str:
    return _check(name, "collection alias")


def check_database_name(name: str) -> str:
    return _check(name, "database")


def check_field_name(name: str) -> str:
    return _check(name, "field")


def check_partition_name(name: str) -> str:
    """Partition names may also start with a digit, and hold ``$`` and ``-``."""
    problem = None
    if not name:
        problem = "Partition name should not be empty."
    elif len(name) > NAME_LENGTH_MAX_CHARS:
        problem = f"The length of a partition name must be less than {NAME_LENGTH_MAX_CHARS} characters."
    elif not _PARTITION.match(name):
        problem = "Partition name can only contain numbers, letters and underscores."
    if problem:
        raise InvalidParameter(f"Invalid partition name: {name}. {problem}")
    return name


def _check(name: str, kind: str) -> str:
    if not name:
        raise InvalidParameter(f"{kind} name should not be empty")
    problem = None
    if len(name) > NAME_LENGTH_MAX_CHARS:
        problem = f"the length of a {kind} name must be less than {NAME_LENGTH_MAX_CHARS} characters"
    elif not _FIRST.match(name):
        problem = f"the first character of a {kind} name must be an underscore or letter"
    elif not _REST.match(name):
        problem = f"{kind} name can only contain numbers, letters and underscores"
    if problem:
        raise InvalidParameter(f"Invalid {kind} name: {name}. {problem}")
    return name

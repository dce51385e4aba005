"""Which names are legal, and the error texts for illegal ones.

The texts are the reference's, which conformance suites check. A blank name counts as empty.
"""

from __future__ import annotations

import re

from elanus.core.errors import InvalidDatabaseName, InvalidFieldName, InvalidParameter
from elanus.core.limits import NAME_LENGTH_MAX_CHARS

DEFAULT_DATABASE = "default"
DEFAULT_PARTITION = "_default"

_FIRST = re.compile(r"[A-Za-z_]")
_REST = re.compile(r"[A-Za-z0-9_]*\Z")
_EITHER_CASE = (
    "like",
    "exists",
    "and",
    "or",
    "not",
    "in",
    "json_contains",
    "json_contains_all",
    "json_contains_any",
    "array_contains",
    "array_contains_all",
    "array_contains_any",
    "array_length",
    "true",
    "false",
    "text_match",
    "phrase_match",
    "random_sample",
)
_KEYWORDS = frozenset({*_EITHER_CASE, *(word.upper() for word in _EITHER_CASE), "True", "False"})
_INDEX = re.compile(r"[A-Za-z0-9_\[\]]*\Z")
_PARTITION_FIRST = re.compile(r"[A-Za-z0-9_]")
_PARTITION = re.compile(r"[A-Za-z0-9_$-]+\Z")


def check_dropped_partition(name: str) -> None:
    """Raises `InvalidParameter`, in the reference's words, for the partition that every collection keeps."""
    if name == DEFAULT_PARTITION:
        raise InvalidParameter("default partition cannot be deleted")


def check_collection_name(name: str) -> str:
    """Return the name unchanged. Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter("collection name should not be empty")
    if problem := _problem(name, "collection"):
        raise InvalidParameter(f"Invalid collection name: {name}. {problem}")
    return name


def check_alias(name: str) -> str:
    """Return the name. Raises `InvalidParameter`, in the reference's words, if it cannot be an alias."""
    if not name.strip():
        raise InvalidParameter("collection alias should not be empty")
    if problem := _problem(name, "collection alias", "a collection alias"):
        raise InvalidParameter(f"Invalid collection alias: {name}. {problem}")
    return name


def check_database_name(name: str) -> str:
    """Raises `InvalidDatabaseName`."""
    problem = "database name couldn't be empty" if not name else _problem(name, "database")
    if problem:
        raise InvalidDatabaseName(f"{problem}: invalid database name[database={name}]")
    return name


def check_resource_group_name(name: str) -> str:
    """Raises `InvalidParameter`."""
    if not name:
        raise InvalidParameter("resource group name couldn't be empty")
    if problem := _problem(name, "resource group"):
        raise InvalidParameter(f"Invalid resource group name {name}. {problem}")
    return name


def check_snapshot_name(name: str) -> str:
    """Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter("snapshot name should not be empty")
    if problem := _problem(name, "snapshot"):
        raise InvalidParameter(f"Invalid snapshot name: {name}. {problem}")
    return name


def check_field_name(name: str) -> str:
    """Check a field name. Words of the filter language are illegal too: filters could not name the field.

    Raises `InvalidFieldName`.
    """
    problem = None
    if not name.strip():
        raise InvalidFieldName(f"field name should not be empty: field name invalid[field={name}]")
    if len(name) > NAME_LENGTH_MAX_CHARS:
        problem = f"The length of a field name must be less than {NAME_LENGTH_MAX_CHARS} characters."
    elif not _FIRST.match(name):
        problem = "The first character of a field name must be an underscore or letter."
    elif not _REST.match(name):
        problem = "Field name can only contain numbers, letters, and underscores."
    elif name in _KEYWORDS or name.lower() == "null":
        problem = f"{name} is keyword in milvus."
    if problem:
        raise InvalidFieldName(f"Invalid field name: {name}. {problem}: field name invalid[field={name}]")
    return name


def check_index_name(name: str) -> str:
    """Return the name; "" for a blank one: the index is then named after its field.

    Brackets are legal: the fields of struct arrays have them. Raises `InvalidParameter`.
    """
    if not name.strip():
        return ""
    problem = None
    if len(name) > NAME_LENGTH_MAX_CHARS:
        problem = f"The length of a index name must be less than {NAME_LENGTH_MAX_CHARS} characters."
    elif not _FIRST.match(name):
        problem = "The first character of a index name must be an underscore or letter."
    elif not _INDEX.match(name):
        problem = "Index name can only contain numbers, letters, and underscores."
    if problem:
        raise InvalidParameter(f"Invalid index name: {name}. {problem}")
    return name


def check_partition_name(name: str) -> str:
    """Partition names may also start with a digit, and contain ``$`` and ``-``. Raises `InvalidParameter`."""
    problem = None
    if not name.strip():
        raise InvalidParameter("Invalid partition name: . Partition name should not be empty.")
    if len(name) > NAME_LENGTH_MAX_CHARS:
        problem = f"The length of a partition name must be less than {NAME_LENGTH_MAX_CHARS} characters."
    elif not _PARTITION_FIRST.match(name):
        problem = "The first character of a partition name must be an underscore or letter."
    elif not _PARTITION.match(name):
        problem = "Partition name can only contain numbers, letters and underscores."
    if problem:
        raise InvalidParameter(f"Invalid partition name: {name}. {problem}")
    return name


def check_named_partition(name: str) -> None:
    """Check the name of a partition to read, whose characters do not matter. Raises `InvalidParameter`."""
    if not name.strip() or len(name) > NAME_LENGTH_MAX_CHARS:
        check_partition_name(name)


def recorded_name(name: str) -> str:
    """Return a name as records of calls have it: of one that no object can have, the beginning.

    A client may send a text as long as a request, which is recorded before it is checked.
    """
    return name if len(name) <= NAME_LENGTH_MAX_CHARS else f"{name[:NAME_LENGTH_MAX_CHARS]}…"


def _problem(name: str, kind: str, called: str = "") -> str | None:
    """Return what is wrong with a non-empty name. ``called``: the kind as written within a sentence."""
    called = called or f"a {kind} name"
    if len(name) > NAME_LENGTH_MAX_CHARS:
        return f"the length of {called} must be less than {NAME_LENGTH_MAX_CHARS} characters"
    if not _FIRST.match(name):
        return f"the first character of {called} must be an underscore or letter"
    if not _REST.match(name):
        return f"{called.removeprefix('a ')} can only contain numbers, letters and underscores"
    return None

"""Which names and passwords are valid: of users, roles, privilege groups and objects.

Each check returns what it was given, and raises `InvalidParameter` with the reference's text.
"""

from __future__ import annotations

import re

from elanus.core.errors import InvalidParameter
from elanus.core.limits import (
    NAME_LENGTH_MAX_CHARS,
    PASSWORD_MAX_BYTES,
    PASSWORD_MIN_BYTES,
    USER_NAME_MAX_CHARS,
)

_USER_NAME = re.compile(r"[A-Za-z0-9_.-]")
_NAME = re.compile(r"[A-Za-z0-9_$]")
_GROUP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_user_name(name: str) -> str:
    """Return the name unchanged. Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter("username must be not empty")
    if len(name) > USER_NAME_MAX_CHARS:
        raise InvalidParameter(
            f"invalid username {name} with length {len(name)}, the length of username must be less than "
            f"{USER_NAME_MAX_CHARS}"
        )
    if not name[0].isascii() or not name[0].isalpha():
        raise InvalidParameter(
            f"invalid user name {name}, the first character must be a letter, but got {name[0]}"
        )
    for character in name:
        if not _USER_NAME.match(character):
            raise InvalidParameter(
                f"invalid user name {name}, username must contain only numbers, letters, underscores, dots, "
                f"and hyphens, but got {character}"
            )
    return name


def check_password(password: str) -> str:
    """Return the password unchanged. Raises `InvalidParameter`, which does not show it."""
    size = len(password.encode())
    if not PASSWORD_MIN_BYTES <= size <= PASSWORD_MAX_BYTES:
        raise InvalidParameter(
            f"invalid password length: invalid parameter[{size} out of range "
            f"{PASSWORD_MIN_BYTES} <= value <= {PASSWORD_MAX_BYTES}]"
        )
    return password


def check_name(name: str, kind: str) -> str:
    """Check the name of a role, an object or an object type. Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter(
            f"{kind} should be not empty: invalid parameter[expected=not empty][actual={name}]"
        )
    if len(name) > NAME_LENGTH_MAX_CHARS:
        raise InvalidParameter(
            f"the length of {kind} must be not greater than limit: invalid parameter"
            f"[{len(name)} out of range 0 <= value <= {NAME_LENGTH_MAX_CHARS}]"
        )
    if name[0] != "_" and not (name[0].isascii() and name[0].isalpha()):
        raise InvalidParameter(
            f"the first character of {kind} must be an underscore or letter: "
            f"invalid parameter[expected={ord('_')}][actual={ord(name[0])}]"
        )
    for place, character in enumerate(name):
        if not _NAME.match(character):
            raise InvalidParameter(
                f"{kind} can only contain numbers, letters, dollars and underscores, "
                f"found {character} at {place}"
            )
    return name


def check_group_name(name: str) -> str:
    """Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter("privilege group name should not be empty")
    if len(name) > NAME_LENGTH_MAX_CHARS:
        raise InvalidParameter(
            f"the length of a privilege group name {name} must be less than "
            f"{NAME_LENGTH_MAX_CHARS} characters"
        )
    if name[0] != "_" and not (name[0].isascii() and name[0].isalpha()):
        raise InvalidParameter(
            f"the first character of a privilege group name {name} must be an underscore or letter"
        )
    if not _GROUP_NAME.match(name):
        raise InvalidParameter(
            f"privilege group name {name} can only contain numbers, letters and underscores"
        )
    return name

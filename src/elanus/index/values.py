"""Numbers as clients send them: JSON numbers, or text.

A client's parameters arrive as JSON in one place and as flattened key/value text in another, so "16"
and 16 are the same. A float or a boolean is never taken for an integer: a client that sends 16.7 or
True has made a mistake and should get an error. The texts keep the reference's wording, which client
suites match.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from elanus.core.errors import InvalidParameter
from elanus.core.index_properties import MMAP_KEY

INT32_MAX = 2**31 - 1
_INTEGER = re.compile(r"[+-]?\d{1,19}")


def integer(name: str, value: object, low: int, high: int) -> int:
    """``value`` as an integer in [low, high]. Raises `InvalidParameter`."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidParameter(
            f"invalid integer value, key: '{name}', value: '{value}': wrong data type in json: "
            f"Type conflict in json: param '{name}' ({_json(value)}) should be integer "
            f"in range [{low}, {high}]"
        )
    if not low <= value <= high:
        raise InvalidParameter(
            f"Out of range in json: param '{name}' ({value}) should be in range [{low}, {high}]"
        )
    return value


def number(name: str, value: object) -> float:
    """``value`` as a finite number. Raises `InvalidParameter`."""
    parsed = _float(value)
    if parsed is None or not math.isfinite(parsed):
        raise InvalidParameter(f"Type conflict in json: param '{name}' ({_json(value)}) should be a number")
    return parsed


def bounded(name: str, value: object, low: float, high: float) -> float:
    """``value`` as a number in [low, high]. Raises `InvalidParameter`."""
    if isinstance(value, str) and _float(value) is None:
        raise InvalidParameter(f"invalid float value, key: '{name}', value: '{value}'")
    parsed = number(name, value)
    if not low <= parsed <= high:
        raise InvalidParameter(
            f"Out of range in json: param '{name}' ({_json(value)}) should be in range [{low:f}, {high:f}]"
        )
    return parsed


def mapped(sent: Mapping[str, object], default: bool) -> bool:
    """Whether a client wants the file of an index mapped. Raises `InvalidParameter`."""
    if MMAP_KEY not in sent:
        return default
    try:
        return boolean(MMAP_KEY, sent[MMAP_KEY])
    except InvalidParameter:
        raise InvalidParameter(
            f"invalid mmap type params: invalid {MMAP_KEY} value: {sent[MMAP_KEY]}, expected: true, false"
        ) from None


def flag(name: str, value: object) -> bool:
    """``value`` as true or false, in JSON or as text in either case. Raises `InvalidParameter`."""
    text = str(value).strip().lower()
    if isinstance(value, bool | str) and text in ("true", "false"):
        return text == "true"
    raise InvalidParameter(f"Type conflict in json: param '{name}' ({_json(value)}) should be a boolean")


def ratio(name: str, value: object) -> float:
    """``value`` as a number in [0, 1). Raises `InvalidParameter`."""
    parsed = number(name, value)
    if not 0.0 <= parsed < 1.0:
        raise InvalidParameter(
            f"Out of range in json: param '{name}' ({_json(value)}) should be in range [0.000000, 1.000000)"
        )
    return parsed


def choice(what: str, value: object, names: Sequence[str]) -> str:
    """``value`` as one of the names. Raises `InvalidParameter`; ``what`` is the parameter in its text."""
    if value not in names:
        raise InvalidParameter(f"{what} {value} not found or not supported, supported: [{' '.join(names)}]")
    return str(value)


def boolean(name: str, value: object) -> bool:
    """``value`` as true or false, in JSON or as text. Raises `InvalidParameter`."""
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise InvalidParameter(f"invalid boolean value, key: '{name}', value: '{value}': use true or false")
    return text == "true"


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _json(value: object) -> str:
    """Return the value as the reference prints it in its messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)

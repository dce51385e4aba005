"""Numbers as clients send them: JSON numbers, or text.

A client's parameters arrive as JSON in one place and as flattened key/value text in another, so "16"
and 16 are the same. A float or a boolean is never taken for an integer: a client that sends 16.7 or
True has made a mistake and should get an error. The texts keep the reference's wording, which client
suites match.
"""

from __future__ import annotations

import math
import re

from elanus.core.errors import InvalidParameter

INT32_MAX = 2**31 - 1
_INTEGER = re.compile(r"[+-]?\d{1,19}")


def integer(name: str, value: object, low: int, high: int) -> int:
    """``value`` as an integer in [low, high]. Raises `InvalidParameter`."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidParameter(
            f"invalid integer value, key: '{name}', value: '{value}': wrong data type in json: "
            f"param '{name}' ({_json(value)}) should be integer in range [{low}, {high}]"
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
    """The value as the reference prints it in its messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)

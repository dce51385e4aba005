"""The build parameters of scalar indexes. The texts of their errors are the reference's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elanus.core.errors import InvalidParameter
from elanus.index.spec import Sent

CARDINALITY_MAX = 1000
JSON_CAST_TYPE = "json_cast_type"
WHOLE_DOCUMENT = "JSON"
"""The cast type of an index over all values below a path."""


def invalid(what: str) -> InvalidParameter:
    """Return the error for parameters that do not describe an index of the field."""
    return InvalidParameter(
        f"{what}: invalid parameter[expected=valid index params][actual=invalid index params]"
    )


def missing(what: str, name: str = "") -> InvalidParameter:
    """Return the error for a parameter that must be given."""
    named = f"[missing_param={name}]" if name else ""
    return invalid(f"{what}: missing parameter{named}")


@dataclass(frozen=True, slots=True)
class CardinalityParam:
    """Up to how many distinct values a bitmap is built."""

    default: int

    def resolve(self, name: str, sent: Sent, k: int) -> int:
        value = _integer(sent.get(name, self.default))
        if value is None or not 1 <= value <= CARDINALITY_MAX:
            raise invalid(
                "failed to check bitmap cardinality limit, should be larger than 0 and smaller than "
                f"{CARDINALITY_MAX}: {name}={sent.get(name)}"
            )
        return value


@dataclass(frozen=True, slots=True)
class GramParam:
    """The length of the shortest or the longest gram, in characters. Both must be given."""

    which: str
    default: int = 0

    def resolve(self, name: str, sent: Sent, k: int) -> int:
        if sent.get("min_gram") is None or sent.get("max_gram") is None:
            raise missing("Ngram index must specify both min_gram and max_gram")
        low, high = (self._value(key, sent[key]) for key in ("min_gram", "max_gram"))
        if low <= 0 or high <= 0 or low > high:
            raise invalid(
                "invalid min_gram or max_gram value for Ngram index, "
                f"min_gram: {low}, max_gram: {high}: invalid parameter"
            )
        return low if self.which == "min_gram" else high

    @staticmethod
    def _value(name: str, value: Any) -> int:
        number = _integer(value)
        if number is None:
            raise invalid(f"{name} for Ngram index must be an integer, got: {value}: invalid parameter")
        return number


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None

"""The recall that searches ask for, from which the effort follows: ``target_recall``.

It is a parameter of a search, and a property of a collection for the searches that name no effort themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.schema import Scalar

TARGET_RECALL = "target_recall"
MISS_FACTOR = "elanus_miss_factor"
"""The search parameter by which a query node passes on what it measured: see
`elanus.index.curve.RecallCurve.effort`."""
EFFORTS: Mapping[str, int] = {"ef": 1 << 30, "search_list": 1 << 30, "nprobe": 65_536}
"""The search parameters that set the effort of a search, and their largest values."""
_CHOSEN = (*EFFORTS, "level", "drop_ratio_search")
"""The parameters by which a client chooses the effort itself."""


def checked_target(value: object) -> float:
    """Return the target. Raises `InvalidParameter` if it is not a number between 0 and 1, both excluded."""
    try:
        target = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        target = math.nan
    if not 0 < target < 1:
        raise InvalidParameter(
            f"{TARGET_RECALL} [{value}] is invalid: give a number above 0 and below 1, such as 0.95; "
            "for a recall of 1 use an index that compares all rows (FLAT)"
        )
    return target


def target_of(params: Mapping[str, object]) -> float | None:
    """Return the target of a search with these parameters; None if it has none.

    Raises `InvalidParameter` for an unusable value, and for a search that chooses its effort, too.
    """
    if TARGET_RECALL not in params:
        return None
    target = checked_target(params[TARGET_RECALL])
    for name in _CHOSEN:
        if name in params:
            raise InvalidParameter(
                f"{TARGET_RECALL} [{params[TARGET_RECALL]}] and {name} [{params[name]}] both set the effort "
                "of the search: send one of them"
            )
    return target


def property_target(properties: Mapping[str, str]) -> float | None:
    """Return the target in the properties of a collection, None without one. Raises `InvalidParameter`."""
    text = properties.get(TARGET_RECALL)
    return None if text is None else checked_target(text)


def with_default_target(params: Mapping[str, Scalar], properties: Mapping[str, str]) -> Mapping[str, Scalar]:
    """Return the parameters of a search in a collection with these properties, which have been checked."""
    if TARGET_RECALL not in properties or TARGET_RECALL in params:
        return params
    if any(name in params for name in _CHOSEN):
        return params
    return {**params, TARGET_RECALL: float(properties[TARGET_RECALL])}

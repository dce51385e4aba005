"""How many clusters of vectors a search looks into: ``segment_filter_ratio``.

It is a parameter of a search, a property of a collection, and a setting, in this order. A search of a
collection whose segments were clustered by the searched vector looks into as many of the nearest ones as the
square root of their number times the ratio, in each shard and partition (`elanus.core.sphere_pruning`). This
is the rule of the reference. Hits in other clusters are lost, so it is off by default: 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.schema import Scalar
from elanus.core.target_recall import TARGET_RECALL

SEGMENT_FILTER_RATIO = "segment_filter_ratio"
RATIO_MAX = 1000.0


def checked_ratio(value: object) -> float:
    """Return the ratio. Raises `InvalidParameter` if it is not a number between 0 and 1000."""
    try:
        ratio = -1.0 if isinstance(value, bool) else float(str(value))
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= RATIO_MAX:
        raise InvalidParameter(
            f"{SEGMENT_FILTER_RATIO} [{value}] is invalid: give a number from 0 to {RATIO_MAX:g}; 0 searches "
            "all clusters"
        )
    return ratio


def ratio_of(params: Mapping[str, object]) -> float:
    """Return the ratio of a search with these parameters; 0 without one. Raises `InvalidParameter`."""
    return checked_ratio(params.get(SEGMENT_FILTER_RATIO, 0.0))


def property_ratio(properties: Mapping[str, str]) -> float | None:
    """Return the ratio in the properties of a collection, None without one. Raises `InvalidParameter`."""
    text = properties.get(SEGMENT_FILTER_RATIO)
    return None if text is None else checked_ratio(text)


def with_default_ratio(
    params: Mapping[str, Scalar], properties: Mapping[str, str], setting: float
) -> Mapping[str, Scalar]:
    """Return the parameters of a search in a collection with these properties, which have been checked.

    A search that asks for a recall gets no ratio that it did not ask for.
    """
    if SEGMENT_FILTER_RATIO in params or TARGET_RECALL in params:
        return params
    own = property_ratio(properties)
    ratio = setting if own is None else own
    return {**params, SEGMENT_FILTER_RATIO: ratio} if ratio else params

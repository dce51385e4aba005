"""Rate limits and the switches that deny: what the properties of a collection and its database allow. Pure.

The names of the properties are the reference's; `collection.force.deny.*` are the switches of databases for
one collection. A switch in a database holds for all its collections. Properties of collections limit rates;
the server's settings limit them for all collections together. A disk limit is for the files of a collection,
of a database, or of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elanus.core.errors import ForceDenied, InvalidParameter

_MB = 1024 * 1024
_BURST_S = 1.0
"""A bucket that nothing is taken from holds what its rate gives in this time."""


class Action(StrEnum):
    """The actions that switches deny, as in the names of the properties."""

    WRITING = "writing"
    READING = "reading"
    DDL = "ddl"


class Rate(StrEnum):
    """The measured amounts: bytes of rows or keys a second, query vectors a second, or queries a second."""

    INSERT = "insert"
    UPSERT = "upsert"
    DELETE = "delete"
    SEARCH = "search"
    QUERY = "query"


_RATES: Mapping[str, tuple[Rate, int]] = {
    "collection.insertRate.max.mb": (Rate.INSERT, _MB),
    "collection.upsertRate.max.mb": (Rate.UPSERT, _MB),
    "collection.deleteRate.max.mb": (Rate.DELETE, _MB),
    "collection.searchRate.max.vps": (Rate.SEARCH, 1),
    "collection.queryRate.max.qps": (Rate.QUERY, 1),
}
"""The properties that limit rates, and how much one of their unit is."""
COLLECTION_DISK, DATABASE_DISK = "collection.diskProtection.diskQuota.mb", "database.diskQuota.mb"
"""The properties that limit the disk space of files."""
LOAD_MEMORY = "collection.loadMemory.max.mb"
"""The property that limits the memory that a load of the collection may need, for each replica."""
_DATABASE, _COLLECTION = "database", "collection"
_TRUE, _FALSE = ("true", "1"), ("false", "0", "")


@dataclass(frozen=True, slots=True)
class Allowed:
    """The meaning of properties. ``denied``: by switches; ``rates``: a second, those that are limited;
    ``disk_bytes``: the most disk space, None for no limit."""

    denied: frozenset[Action] = frozenset()
    rates: Mapping[Rate, float] = field(default_factory=dict)
    disk_bytes: float | None = None


EVERYTHING = Allowed()


def of_database(properties: Mapping[str, str]) -> Allowed:
    """Read a database's properties. A value without meaning, from an older release, is left out."""
    return Allowed(_denied(_DATABASE, properties), disk_bytes=_limit(properties, DATABASE_DISK, _MB))


def of_collection(properties: Mapping[str, str]) -> Allowed:
    """The same for a collection."""
    rates = {
        rate: limit
        for name, (rate, unit) in _RATES.items()
        if (limit := _limit(properties, name, unit)) is not None
    }
    return Allowed(_denied(_COLLECTION, properties), rates, _limit(properties, COLLECTION_DISK, _MB))


def load_limit_bytes(properties: Mapping[str, str]) -> float | None:
    """Return the most memory that a replica of the collection may need when it is loaded; None: any."""
    return _limit(properties, LOAD_MEMORY, _MB)


def check_properties(properties: Mapping[str, str]) -> None:
    """Check the properties of a database or a collection that are about limits. Raises `InvalidParameter`."""
    for name in sorted((_RATES.keys() | {COLLECTION_DISK, DATABASE_DISK, LOAD_MEMORY}) & properties.keys()):
        if _number(properties[name]) is None:
            raise InvalidParameter(
                f"invalid parameter[{name}={properties[name]}]: give a number; a negative one sets no limit"
            )
    for name in sorted(properties):
        if name in _SWITCHES and properties[name].lower() not in (*_TRUE, *_FALSE):
            raise InvalidParameter(f"invalid parameter[{name}={properties[name]}]: give true or false")


def refuse_denied(action: Action, database: str, of: Allowed, name: str, own: Allowed) -> None:
    """Raises `ForceDenied` when a switch of the database or of the collection denies the action."""
    if action in of.denied:
        switch, where = _switch(_DATABASE, action), f"database {database}"
    elif action in own.denied:
        switch, where = _switch(_COLLECTION, action), f"collection {name}"
    else:
        return
    raise ForceDenied(
        "quota exceeded[reason=access has been disabled by the administrator]: "
        f"{switch} is true for the {where}: set it to false, or drop the property"
    )


def _switch(level: str, action: Action) -> str:
    return f"{level}.force.deny.{action}"


_SWITCHES = frozenset(_switch(level, action) for level in (_DATABASE, _COLLECTION) for action in Action)


def _denied(level: str, properties: Mapping[str, str]) -> frozenset[Action]:
    return frozenset(a for a in Action if properties.get(_switch(level, a), "").lower() in _TRUE)


def _limit(properties: Mapping[str, str], name: str, unit: int) -> float | None:
    """Return the limit in its smallest unit; None if the property is not there, negative or without
    meaning."""
    number = _number(properties.get(name, ""))
    return None if number is None or number < 0 else number * unit


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class TokenBucket:
    """Gives ``rate`` tokens a second, and those of one second at once.

    A request gets any number while the balance is positive, and the balance may become negative: none is
    too large to be answered, and those after it wait until it is paid. Times are of a monotonic clock.
    """

    __slots__ = ("_at_s", "_balance", "_rate")

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._balance = rate * _BURST_S
        self._at_s = now_s

    def take(self, tokens: float, rate: float, now_s: float) -> bool:
        """Take the tokens, or return False and take none. ``rate``: the one that holds from now on."""
        if not self.is_positive(rate, now_s):
            return False
        self._balance -= tokens
        return True

    def spend(self, tokens: float) -> None:
        """Take the tokens whatever the balance is: they are for a request that was admitted before."""
        self._balance -= tokens

    def is_positive(self, rate: float, now_s: float) -> bool:
        """Whether `take` would give tokens now."""
        self._balance += self._rate * max(0.0, now_s - self._at_s)
        self._at_s = max(now_s, self._at_s)
        self._rate = rate
        self._balance = min(self._balance, rate * _BURST_S)
        return self._balance > 0

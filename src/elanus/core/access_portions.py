"""Large changes of users, roles, privilege groups and API keys, in portions that each fit in a transaction.

Records that others name come first: groups before roles, roles before users, users before their keys. Records
are removed in the other order, after everything is written. So a change that breaks off leaves nothing that
names what is not there, and gives nobody more than the whole change would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elanus.core.access import AccessPolicy
from elanus.core.batches import batched

RECORDS_AT_ONCE = 100
"""The most users, roles, groups and keys that one portion changes."""
_ORDER = ("groups", "roles", "users", "keys")


def portions(
    former: AccessPolicy, changed: AccessPolicy, at_once: int = RECORDS_AT_ONCE
) -> Iterator[AccessPolicy]:
    """Yield policies on the way from ``former`` to ``changed``, the last one, each with its own version."""
    tables = {table: dict(_of(former, table)) for table in _ORDER}
    written = [
        (table, name)
        for table in _ORDER
        for name, value in _of(changed, table).items()
        if tables[table].get(name) != value
    ]
    removed = [
        (table, name)
        for table in reversed(_ORDER)
        for name in tables[table]
        if name not in _of(changed, table)
    ]
    for version, portion in enumerate(batched([*written, *removed], at_once), former.version + 1):
        for table, name in portion:
            if name in _of(changed, table):
                tables[table][name] = _of(changed, table)[name]
            else:
                del tables[table][name]
        yield AccessPolicy(version=version, **{table: dict(records) for table, records in tables.items()})


def _of(policy: AccessPolicy, table: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(policy, table)
    return found

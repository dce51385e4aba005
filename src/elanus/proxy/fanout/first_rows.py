"""The first rows in an order, over several query nodes, if rows share primary keys.

A node returns the first rows of its own, each the newest of its key there. Another node may have a newer row
of that key whose values come later in the order, so that its answer, cut at the limit, lacks it. The older
row must not be returned then. So the keys of the rows that would be returned are looked up on all nodes, and
rows that turn out to be older are left out. If a node's answer has fewer rows than the limit without them, it
is asked for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from elanus.api.querynode import NodeQuery
from elanus.core.schema import TIMESTAMP_FIELD
from elanus.proxy.fanout.reduce import merge_rows

Part = Mapping[str, pa.Array]
"""A node's answer: the primary key first, the requested fields, and the system field Timestamp."""


def first_rows(read: Callable[[NodeQuery], Sequence[Part]], request: NodeQuery) -> dict[str, pa.Array]:
    """Return the first ``request.limit`` rows in its order, each the newest of its key, without Timestamp.

    ``read``: asks all nodes of a replica. Raises what it raises.
    """
    assert request.limit is not None, "without a limit no answer is cut"
    known = _NewestRows(read, request)
    width = request.limit
    while True:
        parts = read(replace(request, limit=width))
        key = next(iter(parts[0]))
        cut = [part for part in parts if len(part[key]) >= width]
        known.note(parts, key)
        while True:
            rows = merge_rows(
                [known.only_newest(part, key) for part in parts], key, request.limit, request.order
            )
            if len(parts) == 1 or not cut or known.are_newest(rows[key]):
                break
        older = max((len(part[key]) - len(known.only_newest(part, key)[key]) for part in cut), default=0)
        if older <= width - request.limit:
            return rows
        width = request.limit + 2 * older


class _NewestRows:
    """The newest known rows of keys, as of the read's timestamp."""

    def __init__(self, read: Callable[[NodeQuery], Sequence[Part]], request: NodeQuery) -> None:
        self._read = read
        self._request = request
        self._stamps: dict[int | str, int] = {}
        self._looked_up: set[int | str] = set()

    def note(self, parts: Sequence[Part], key: str) -> None:
        for part in parts:
            for one, stamp in zip(part[key].to_pylist(), part[TIMESTAMP_FIELD].to_pylist(), strict=True):
                self._stamps[one] = max(stamp, self._stamps.get(one, stamp))

    def only_newest(self, part: Part, key: str) -> Part:
        """Return the rows of the part of whose keys no newer row is known."""
        keys, stamps = part[key].to_pylist(), part[TIMESTAMP_FIELD].to_pylist()
        newest = pa.array(
            [self._stamps[one] == stamp for one, stamp in zip(keys, stamps, strict=True)], pa.bool_()
        )
        return {name: column.filter(newest) for name, column in part.items()}

    def are_newest(self, keys: pa.Array) -> bool:
        """Look up these keys, unless that was done; return whether this found no newer row of any."""
        asked = [one for one in keys.to_pylist() if one not in self._looked_up]
        if not asked:
            return True
        before = {one: self._stamps[one] for one in asked}
        of_keys = replace(
            self._request,
            primary_keys=pa.array(asked, keys.type),
            output_fields=(TIMESTAMP_FIELD,),
            order=(),
            limit=None,
        )
        parts = self._read(of_keys)
        self.note(parts, next(iter(parts[0])))
        self._looked_up.update(asked)
        return all(self._stamps[one] == stamp for one, stamp in before.items())

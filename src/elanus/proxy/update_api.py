"""The values in the verb of partial updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from elanus.core.partial_update import ArrayChange

if TYPE_CHECKING:
    from elanus.proxy.role.cache import CachedCollection


@dataclass(frozen=True, slots=True)
class Update:
    """``rows``: the primary key and the columns that change, in the order of the schema.

    ``changes``: of arrays that are extended or lose elements; others are replaced. ``client``: as in
    `Insert`.
    """

    collection: CachedCollection
    partition: str
    rows: pa.RecordBatch
    changes: Mapping[str, ArrayChange] = field(default_factory=dict)
    client: str = ""

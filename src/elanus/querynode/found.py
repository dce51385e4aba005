"""The rows that a search has found, ranked and not yet fetched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.reduce import Keys, PrimaryKeys, primary_keys
from elanus.core.schema import FieldSchema
from elanus.querynode.gather import FoundRows, Rows


@dataclass(frozen=True, slots=True)
class Found:
    """The hits of query i are ``offsets[i]:offsets[i + 1]``, best first.

    ``numbers``: the primary keys of the hits, if they are numbers. ``elements``: which element of its row
    each hit is, in a search of elements.
    """

    offsets: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    rows: FoundRows
    numbers: Keys | None
    elements: Rows | None = None

    def selected(self, offsets: Rows, places: Rows) -> Found:
        """Return the hits at these places, with these ``offsets``."""
        return Found(
            offsets,
            self.scores[places],
            self.rows.select(places),
            None if self.numbers is None else self.numbers[places],
            None if self.elements is None else self.elements[places],
        )

    def column(self, field: FieldSchema) -> pa.Array:
        """Return a field's values of the hits."""
        if field.is_primary and self.numbers is not None:
            return pa.array(self.numbers)
        return self.rows.column(field.name, field.arrow_type)

    def ids(self, primary: FieldSchema) -> PrimaryKeys:
        if self.numbers is not None:
            return self.numbers
        return primary_keys(self.rows.column(primary.name, primary.arrow_type))

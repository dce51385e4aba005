"""Warm-up settings: whether what a load needs is read at once (``sync``) or when it is first used.

Elanus reads at once all that it keeps in memory. Index files that it maps (``mmap.enabled``) are read when
they are first used, or when they are loaded, if a warm-up setting of the index or the collection says so. No
setting changes an answer. The texts of errors are the reference's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from elanus.core.catalog import Index
from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID, IndexID
from elanus.core.index_properties import WARMUP_KEY, WARMUP_POLICIES, property_of

FIELD_WARMUP = "warmup"
COLLECTION_WARMUPS = tuple(
    f"warmup.{what}" for what in ("scalarField", "scalarIndex", "vectorField", "vectorIndex")
)
_SYNC = "sync"


def check_collection_warmups(properties: Mapping[str, str]) -> None:
    """Check the properties of a collection that are about warm-up. Raises `InvalidParameter`."""
    if FIELD_WARMUP in properties:
        raise InvalidParameter(
            f"warmup key '{FIELD_WARMUP}' is only allowed at field level, use "
            f"{'/'.join(COLLECTION_WARMUPS)} at collection level"
        )
    for key in COLLECTION_WARMUPS:
        if key in properties and properties[key] not in WARMUP_POLICIES:
            raise InvalidParameter(f"invalid warmup value for key {key}: {_expected(properties[key])}")


def warmed_indexes(
    indexes: Iterable[Index], vectors: Collection[FieldID], properties: Mapping[str, str]
) -> frozenset[IndexID]:
    """Return the indexes whose mapped files are read when they are loaded.

    ``vectors``: the fields of vectors. ``properties``: those of the collection; an index's own setting comes
    first.
    """
    by_default = {
        is_vector: properties.get(f"warmup.{'vector' if is_vector else 'scalar'}Index")
        for is_vector in (True, False)
    }
    return frozenset(
        index.index_id
        for index in indexes
        if (property_of(index.params, WARMUP_KEY) or by_default[index.field_id in vectors]) == _SYNC
    )


def check_field_warmup(field: str, params: Mapping[str, str]) -> None:
    """Check a field's parameters. Raises `InvalidParameter`."""
    if FIELD_WARMUP in params and params[FIELD_WARMUP] not in WARMUP_POLICIES:
        raise InvalidParameter(f"invalid warmup policy for field {field}: {_expected(params[FIELD_WARMUP])}")


def _expected(value: str) -> str:
    return f"invalid warmup policy: {value}, expected: {', '.join(WARMUP_POLICIES)}"

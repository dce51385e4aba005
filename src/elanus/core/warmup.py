"""Warm-up settings: whether what a load needs is read at once (``sync``) or when it is first used.

Elanus reads at once all that it keeps in memory, and maps the other files; so a setting changes no answer.
It is checked and kept, and descriptions show it. The texts of errors are the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter

FIELD_WARMUP = "warmup"
COLLECTION_WARMUPS = tuple(
    f"warmup.{what}" for what in ("scalarField", "scalarIndex", "vectorField", "vectorIndex")
)
_POLICIES = ("sync", "disable")


def check_collection_warmups(properties: Mapping[str, str]) -> None:
    """Check the properties of a collection that are about warm-up. Raises `InvalidParameter`."""
    if FIELD_WARMUP in properties:
        raise InvalidParameter(
            f"warmup key '{FIELD_WARMUP}' is only allowed at field level, use "
            f"{'/'.join(COLLECTION_WARMUPS)} at collection level"
        )
    for key in COLLECTION_WARMUPS:
        if key in properties and properties[key] not in _POLICIES:
            raise InvalidParameter(f"invalid warmup value for key {key}: {_expected(properties[key])}")


def check_field_warmup(field: str, params: Mapping[str, str]) -> None:
    """Check a field's parameters. Raises `InvalidParameter`."""
    if FIELD_WARMUP in params and params[FIELD_WARMUP] not in _POLICIES:
        raise InvalidParameter(f"invalid warmup policy for field {field}: {_expected(params[FIELD_WARMUP])}")


def _expected(value: str) -> str:
    return f"invalid warmup policy: {value}, expected: {', '.join(_POLICIES)}"

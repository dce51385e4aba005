"""Bugs that show in a collection whose fields change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elanus.core import added_fields
from elanus.datacoord.vchannels import Vchannels
from elanus.sim import plan


def _with_changing_fields(
    plant: Callable[[pytest.MonkeyPatch], None],
) -> Callable[[pytest.MonkeyPatch], None]:
    """Hunted where it can be found: every seed has them."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(plan, "has_changing_fields", lambda seed: True)
        plant(patch)

    planted.__doc__ = plant.__doc__
    return planted


@_with_changing_fields
def values_of_the_field_before(patch: pytest.MonkeyPatch) -> None:
    """A field finds the values of a dropped one of its name."""
    patch.setattr(added_fields, "_is_dropped", lambda column, schema: False)


@_with_changing_fields
def schema_changed_under_its_old_epoch(patch: pytest.MonkeyPatch) -> None:
    """Owners of vchannels go on with the former schema, and what they write by it counts."""

    async def kept(self: Vchannels, collection_id: Any, schema: Any) -> None:
        async with self._lock:
            found = self._state.vchannels_of(collection_id)
            await self._state.put(vchannels=[replace(v, schema=schema) for v in found if not v.dropping])

    patch.setattr(Vchannels, "change_schema", kept)


BUGS = (
    ("values of the field before", values_of_the_field_before, frozenset({"SEG1", "VIS1", "VIS4"})),
    (
        "schema changed under its old epoch",
        schema_changed_under_its_old_epoch,
        frozenset({"VIS4", "SEG1", "VIS1"}),
    ),
)

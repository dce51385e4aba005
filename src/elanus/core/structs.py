"""Arrays of structs: each field of the struct is stored as an array; in a row all of them have one length.

Field ``title`` of the struct array ``clips`` is the Array field ``clips[title]``. Only the wire puts the
arrays together; filters read one of them, as ``clips["title"]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID

ELEMENT = "$element"
"""The column of hits that says which element of the struct array was found, from 0: int64."""


@dataclass(frozen=True)
class StructSchema:
    """A struct array: ``nullable`` holds for all its fields. ``params``: as of a field."""

    field_id: FieldID
    name: str
    description: str = ""
    nullable: bool = False
    params: Mapping[str, str] = field(default_factory=dict)


def member_name(struct: str, name: str) -> str:
    """Return the name of the array that holds a field of a struct array."""
    return f"{struct}[{name}]"


def struct_and_name(member: str) -> tuple[str, str] | None:
    """Return the struct array and the field that an array holds; None for other fields."""
    bracket = member.rfind("[", 1, -2)  # with a character before it, and one inside
    return (member[:bracket], member[bracket + 1 : -1]) if bracket > 0 and member.endswith("]") else None


def check_lengths(structs: Sequence[StructSchema], rows: pa.RecordBatch) -> None:
    """Check that the arrays of each struct array have one length in each row. Raises `InvalidParameter`."""
    for struct in structs:
        members = [name for name in rows.schema.names if name.startswith(f"{struct.name}[")]
        if not members:  # of an update that leaves the struct array as it is
            continue
        first = pc.fill_null(pc.list_value_length(rows.column(members[0])), -1)
        for name in members[1:]:
            lengths = pc.fill_null(pc.list_value_length(rows.column(name)), -1)
            wrong = pc.not_equal(first, lengths)
            if pc.any(wrong).as_py():
                row = int(pc.index(wrong, True).as_py())
                raise InvalidParameter(
                    f"inconsistent array length in struct array field {struct.name}, row {row}: "
                    f"{members[0]} has {first[row]} elements, {name} has {lengths[row]}"
                )

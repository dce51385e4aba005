"""Output fields: from the names in a request to the columns that must be read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from elanus.core.errors import FieldNotLoaded, InvalidParameter
from elanus.core.ordering import AGGREGATE
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema
from elanus.core.structs import struct_and_name

COUNT = "count(*)"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_KEY = re.compile(rf"""{re.escape(DYNAMIC_FIELD)}\[(?:"(?P<key>[^"]+)"|'(?P<other>[^']+)')\]""")


def asks_for_count(requested: tuple[str, ...]) -> bool:
    """Whether a query requests the number of rows instead of the rows."""
    return len(requested) == 1 and requested[0].strip().lower() == COUNT


@dataclass(frozen=True, slots=True)
class Outputs:
    """``columns`` are read from storage; ``names`` are the output names reported to the client.

    ``dynamic``: the keys of ``$meta`` that were named; ``None``: whole dynamic rows. ``spared``: the columns
    that only ``*`` asked for, which an answer lacks if their fields are not loaded. ``keys``: all keys that
    were named.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    dynamic: tuple[str, ...] | None
    spared: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def spared_unless(self, needed: Iterable[str]) -> tuple[str, ...]:
        """Return the columns that the answer may lack, if the request needs ``needed`` for something else."""
        kept = set(needed)
        return tuple(c for c in self.spared if c not in kept) if self.spared else ()

    def found_in(self, columns: Collection[str]) -> Outputs:
        """Return what is shown of an answer with these columns."""
        missing = {c for c in self.spared if c not in columns}
        if not missing:
            return self
        found = tuple(c for c in self.columns if c not in missing)
        gone = {*map(_shown, missing)}.difference(map(_shown, found))
        dynamic = () if DYNAMIC_FIELD in missing else self.dynamic
        return Outputs(found, tuple(name for name in self.names if name not in gone), dynamic)

    @contextmanager
    def naming_keys(self) -> Iterator[None]:
        """Refuse the first dynamic key by its name, if nodes refuse the dynamic field."""
        try:
            yield
        except FieldNotLoaded as error:
            if not self.keys or DYNAMIC_FIELD not in error.message:
                raise
            raise FieldNotLoaded(error.message.replace(DYNAMIC_FIELD, self.keys[0])) from error


def resolve_outputs(schema: CollectionSchema, requested: tuple[str, ...], *, with_key: bool) -> Outputs:
    """``*`` means every field. ``with_key`` always includes the primary key (queries).

    With a dynamic field, any identifier can be the name of a key. Raises `InvalidParameter` for a name that
    is neither a field nor could be a key.
    """
    structs = {struct.name for struct in schema.structs}
    columns: dict[str, None] = {}
    named: set[str] = set()
    keys: list[str] = []
    whole_meta = False
    for name in requested:
        name = name.strip()
        if name == "*":
            columns |= dict.fromkeys(f.name for f in schema.fields if schema.returns(f))
            whole_meta = schema.dynamic_field is not None
        elif not with_key and AGGREGATE.fullmatch(name):
            raise InvalidParameter(f"aggregates are not supported in search request: {name}; send a query")
        elif name in structs:
            members = [f.name for f in schema.members(name)]
            columns |= dict.fromkeys(members)
            named |= set(members)
        elif name in schema.by_name and not schema.returns(schema.by_name[name]):
            raise InvalidParameter(f"not allowed to retrieve raw data of field {name}")
        elif name in schema.by_name:
            columns[name] = None
            named.add(name)
            whole_meta = whole_meta or schema.by_name[name].is_dynamic
        elif schema.dynamic_field is not None:
            keys.append(_dynamic_key(name))
        else:
            raise InvalidParameter(f"field {name} not exist")
    # a field that was added later may have the name of a key; an answer has one value of a name, the field's
    keys = [key for key in keys if key not in columns]
    if keys and schema.dynamic_field is not None:
        columns[schema.dynamic_field.name] = None
        named.add(schema.dynamic_field.name)
    if with_key:
        columns = {schema.primary_field.name: None} | columns
    names = list(dict.fromkeys(_shown(c) for c in columns if not schema.by_name[c].is_dynamic))
    if whole_meta and schema.dynamic_field is not None:
        names.append(schema.dynamic_field.name)
    dynamic = None if whole_meta else tuple(keys)
    spared = tuple(c for c in columns if c not in named and c != schema.primary_field.name)
    return Outputs(tuple(columns), (*names, *(keys if not whole_meta else ())), dynamic, spared, tuple(keys))


def _shown(column: str) -> str:
    """Answers show a struct array, not the arrays of its fields."""
    found = struct_and_name(column)
    return column if found is None else found[0]


def _dynamic_key(name: str) -> str:
    """``$meta["k"]`` and ``k`` name the same key."""
    if _IDENTIFIER.fullmatch(name):
        return name
    if quoted := _QUOTED_KEY.fullmatch(name):
        return quoted["key"] or quoted["other"]
    raise InvalidParameter(
        f"parse output field name failed: {name}: field {name} not exist, and it is no name of a dynamic key"
    )

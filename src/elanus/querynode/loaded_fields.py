"""Loads of some fields: what a query node holds of the rows, and the reads that need more than that.

The node reads rows by a schema without the fields that are not loaded, so their columns are neither read from
files nor kept from the log. The log's entries are still checked against the whole schema: every reader must
skip the same ones (`elanus.core.quarantine`).

Two kinds of columns stay in memory although reads may not name them: the field by which rows expire, and the
texts from which readers compute the vectors of a field that is loaded. The texts of refusals are the
reference's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from elanus.api.querynode import NodeQuery, NodeSearch
from elanus.core.errors import FieldNotLoaded, InvalidFilter
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.expr import BoundFilter
from elanus.expr.tree import Column, columns_in
from elanus.text import analyzers_of


def held_schema(schema: CollectionSchema, left_out: Collection[FieldID]) -> CollectionSchema:
    """Return the schema of what memory holds of the rows. ``left_out``: the fields that are not loaded."""
    if not left_out:
        return schema
    loaded = {f.name for f in schema.fields if f.field_id not in left_out}
    functions = tuple(f for f in schema.functions if loaded.issuperset(f.outputs))
    needed = {schema.ttl_field}
    for function in functions:
        if not function.is_stored:
            for name in function.inputs:
                needed |= {name, analyzers_of(schema.field(name)).by_field or ""}
    kept = tuple(f for f in schema.fields if f.name in loaded or f.name in needed)
    return replace(schema, fields=kept, functions=functions)


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The fields that reads may not name, by name."""

    fields: Mapping[str, FieldSchema] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: CollectionSchema, left_out: Collection[FieldID]) -> Unloaded:
        return cls({f.name: f for f in schema.fields if f.field_id in left_out})

    def check_searched(self, field_id: FieldID) -> None:
        """Raises `FieldNotLoaded`."""
        for one in self.fields.values():
            if one.field_id == field_id:
                raise FieldNotLoaded(f'ann field "{one.name}" not loaded')

    def check_filter(self, row_filter: BoundFilter) -> None:
        """Raises `InvalidFilter` for a condition on a field that is not loaded."""
        if self.fields:
            for column in columns_in(row_filter.predicate):
                if column.field.name in self.fields:
                    raise InvalidFilter(
                        "failed to create query plan: cannot parse expression: "
                        f"{row_filter.text}, error: {_refusal(column)}"
                    )

    def check_columns(self, names: Iterable[str]) -> None:
        """Raises `FieldNotLoaded`."""
        if self.fields:
            for name in names:
                if (one := self.fields.get(name)) is not None:
                    raise FieldNotLoaded(
                        f"field {name} cannot be returned since dynamic field not loaded"
                        if one.is_dynamic
                        else f"field {name} is not loaded"
                    )

    def search(self, request: NodeSearch) -> NodeSearch:
        """Return the search with the output fields that it can have.

        Raises `FieldNotLoaded`, and `InvalidFilter`, if it needs a field that is not loaded.
        """
        if not self.fields:
            return request
        self.check_searched(request.field_id)
        self.check_filter(request.filter)
        if request.boosts is not None:
            for boost in request.boosts.functions:
                self.check_filter(boost.filter)
                self.check_columns([boost.random_field])
        for chain in (request.chains.segment, request.chains.node) if request.chains else ():
            self.check_columns(() if chain is None else chain.fields)
        return replace(request, output_fields=self._outputs(request))

    def query(self, request: NodeQuery) -> NodeQuery:
        """As `search`, for a query or a count."""
        if not self.fields:
            return request
        self.check_filter(request.filter)
        self.check_columns(by.field for by in request.order)
        if request.aggregation is not None:
            self.check_columns(request.aggregation.fields)
        return replace(request, output_fields=self._outputs(request))

    def _outputs(self, request: NodeSearch | NodeQuery) -> tuple[str, ...]:
        names = request.output_fields
        spared = self.fields.keys() & set(request.spared_fields)
        self.check_columns(name for name in names if name not in spared)
        return tuple(name for name in names if name not in spared)


def _refusal(column: Column) -> str:
    """Say that a filter's column is not loaded; of the dynamic field, name the key."""
    one = column.field
    if one.is_dynamic and column.path:
        return f"field {column.path[0]} is dynamic but dynamic field is not loaded"
    return f'field fieldID:{one.field_id} name:"{one.name}" data_type:{_proto_name(one)} is not loaded'


def _proto_name(one: FieldSchema) -> str:
    """Return a data type's name as clients know it from the interface: ``VarChar``."""
    return one.data_type.name.title().replace("_", "").replace("Varchar", "VarChar")

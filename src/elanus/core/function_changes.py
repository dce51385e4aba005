"""Functions that a collection gets or loses after it was made, together with the fields that they compute.

Older rows have no values in an added field: readers and jobs compute them from the rows' texts
(`elanus.storage.computed`), and compaction writes them. Such a function does not change: its indexed values
would be another function's. A function whose values are stored can be added to a field, altered and dropped:
rows keep the values that they have. The texts of errors are the reference's.
"""

from __future__ import annotations

from dataclasses import replace

from elanus.core.dropped_fields import without_fields
from elanus.core.errors import InvalidParameter
from elanus.core.functions import BM25, Function, check_functions, with_outputs_marked
from elanus.core.limits import COLLECTION_FIELDS_MAX, VECTOR_FIELDS_MAX
from elanus.core.schema import CollectionSchema, FieldSchema


def with_added_function(schema: CollectionSchema, field: FieldSchema, function: Function) -> CollectionSchema:
    """Return the schema with a function and the field that it computes. Raises `InvalidParameter`."""
    name = field.name
    if name in schema.by_name or any(struct.name == name for struct in schema.structs):
        raise InvalidParameter(f"duplicate field name: {name}: collection {schema.name} has it")
    if function.outputs != (name,):
        raise InvalidParameter(
            f"function {function.name} must compute the field that is added with it: {name}, "
            f"not {', '.join(function.outputs)}"
        )
    others = [f for f in schema.fields if not f.is_dynamic]
    if len(others) >= COLLECTION_FIELDS_MAX:
        raise InvalidParameter(
            f"The number of fields has reached the maximum value {COLLECTION_FIELDS_MAX}: "
            f"collection {schema.name}"
        )
    if len(schema.vector_fields) >= VECTOR_FIELDS_MAX:
        raise InvalidParameter(
            f"maximum vector field's number should be limited to {VECTOR_FIELDS_MAX}: "
            f"collection {schema.name}"
        )
    check_functions([*others, field], (*schema.functions, function))
    if function.is_stored:
        raise InvalidParameter(
            f"{function.kind} function {function.name} cannot be added with its field: earlier rows would "
            "have no vectors; create a new collection, or add the function to a field with vectors"
        )
    added = replace(field, field_id=schema.next_field_id, is_added=True, is_function_output=True)
    return replace(
        schema,
        fields=(*others, added, *(f for f in schema.fields if f.is_dynamic)),
        functions=(*schema.functions, function),
    )


def with_set_function(schema: CollectionSchema, function: Function, replaced: str = "") -> CollectionSchema:
    """Return the schema with a function whose values are stored, on fields that are there.

    ``replaced``: the name of the function whose parameters and description change; "": it is added. Earlier
    rows keep their values. Raises `InvalidParameter`.
    """
    if not function.is_stored:
        raise refuse_altered_function(function.kind) if replaced else refuse_lone_function(function.kind)
    if replaced:
        old = next((f for f in schema.functions if f.name == replaced), None)
        if old is None:
            raise InvalidParameter(f"function not found: {replaced}: collection {schema.name}")
        if replace(function, params=old.params, description=old.description) != old:
            raise InvalidParameter(
                f"function {replaced} keeps its name, its type and its fields: only its params and "
                "description can be altered; drop it and add another one"
            )
    functions = (*schema.functions, function)
    if replaced:
        functions = tuple(function if f.name == replaced else f for f in schema.functions)
    check_functions([f for f in schema.fields if not f.is_dynamic], functions)
    return replace(schema, fields=with_outputs_marked(schema.fields, functions), functions=functions)


def with_dropped_function(schema: CollectionSchema, name: str, *, with_outputs: bool) -> CollectionSchema:
    """Return the schema without a function. ``with_outputs``: and without the fields that it computes.

    Otherwise clients send their values from then on. Raises `InvalidParameter`.
    """
    if not name:
        raise InvalidParameter("function name is empty")
    function = next((f for f in schema.functions if f.name == name), None)
    if function is None:
        raise InvalidParameter(f"function not found: {name}")
    left = replace(schema, functions=tuple(f for f in schema.functions if f is not function))
    if with_outputs:
        if all(field.name in function.outputs for field in schema.vector_fields):
            raise InvalidParameter(
                f"cannot drop function {name}: it would leave no vector field in the collection"
            )
        return without_fields(left, function.outputs)
    if function.is_stored:
        fields = tuple(
            replace(f, is_function_output=False) if f.name in function.outputs else f for f in schema.fields
        )
        return replace(left, fields=fields)
    if function.kind == BM25:
        raise InvalidParameter(
            f"BM25 function must be dropped with its output field in drop_function_field interface: {name}"
        )
    raise InvalidParameter(
        f"{function.kind} function must be dropped with its output field in drop_function_field interface: "
        f"{name}: the values of older rows are computed when they are read"
    )


def refuse_lone_function(kind: str) -> InvalidParameter:
    """Return the error for adding a function to fields that are there."""
    return InvalidParameter(
        f"currently does not support adding {kind} function through this API, use AlterCollectionSchema"
    )


def refuse_altered_function(kind: str) -> InvalidParameter:
    """Return the error for changing a function."""
    return InvalidParameter(
        f"currently does not support alter {kind} function; drop it with its output fields and re-add"
    )


def refuse_lone_drop(kind: str) -> InvalidParameter:
    """Return the error for dropping a function and keeping the field that it computes."""
    return InvalidParameter(
        f"currently does not support dropping {kind} function through this API, use AlterCollectionSchema "
        "with drop_function_output_fields=true"
    )

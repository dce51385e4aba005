"""A query's aggregation: from the output fields and the fields to group by that a client named."""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.aggregation import Aggregate, Aggregation, check_group_fields, parse_aggregate
from elanus.core.errors import InvalidParameter
from elanus.core.ordering import OrderBy
from elanus.core.schema import CollectionSchema


def aggregation_of(
    schema: CollectionSchema,
    output_fields: Sequence[str],
    group_by: Sequence[str],
    order: Sequence[OrderBy],
) -> tuple[Aggregation, tuple[str, ...]] | None:
    """Return the aggregation and the names of its columns in the client's order; None: a query of rows.

    Raises `InvalidParameter`.
    """
    aggregates: list[Aggregate] = []
    names: list[str] = []
    plain: list[str] = []
    for text in output_fields:
        aggregate = parse_aggregate(text, schema)
        if aggregate is None:
            plain.append(text.strip())
            names.append(text.strip())
        else:
            aggregates.append(aggregate)
            names.append(aggregate.name)
    if not aggregates and not group_by:
        return None
    keys = tuple(dict.fromkeys(group_by))
    check_group_fields(schema, keys)
    for name in plain:
        if name not in keys:
            raise InvalidParameter(
                f"output field {name} is neither in group_by_fields nor an aggregate: "
                f"a query with aggregation returns only these, and groups by {list(keys)}"
            )
    for by in order:
        if by.field not in keys:  # an aggregate is no field, so `parse_order` has refused it
            raise InvalidParameter(
                f"ORDER BY field '{by.field}' is not valid: when using GROUP BY or aggregates, "
                f"ORDER BY can only reference GROUP BY columns. Valid targets are: [{' '.join(keys)}]"
            )
    return Aggregation(keys, tuple(dict.fromkeys(aggregates))), tuple(dict.fromkeys(names)) or keys

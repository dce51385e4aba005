"""The JSON bodies of requests about rows: insert, upsert, delete, get, query and the searches."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from elanus.proxy.rest.bodies import Body, FunctionBody, OfCollection

LIMIT_DEFAULT = 100
_ALL = "*"


class FieldOperation(Body, kw_only=True):
    """``op``: REPLACE, or for an Array field ARRAY_APPEND or ARRAY_REMOVE."""

    field_name: str = ""
    op: str = ""


class Rows(OfCollection, kw_only=True):
    """``data``: the rows, as objects by field name. ``partial_update``: of an upsert, whose rows keep the
    values of the fields that they lack. ``field_ops``: arrays that an upsert extends, or takes elements from;
    it is then partial."""

    data: list[dict[str, Any]] | dict[str, Any]
    partition_name: str = ""
    partial_update: bool = False
    field_ops: list[FieldOperation] = []


_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Flat = None | bool | _Int64 | float | str | list[_Int64 | float]

FlatRow = dict[str, _Flat]


class FlatRows(Rows, kw_only=True):
    """Rows without objects, and without lists of anything but numbers.

    Larger integers are left to the parser of all other bodies, which reads them as floats.
    """

    data: list[FlatRow]


class Delete(OfCollection, kw_only=True):
    filter: str
    partition_name: str = ""
    expr_params: dict[str, Any] = {}
    consistency_level: str = ""


class Get(OfCollection, kw_only=True):
    """``id``: a primary key, or a list of them. ``filter`` and ``limit`` have no effect: the guide sends
    them with keys."""

    id: Any
    filter: str = ""
    limit: int = 0
    partition_name: str = ""
    partition_names: list[str] = []
    output_fields: list[str] = field(default_factory=lambda: [_ALL])
    consistency_level: str = ""
    explain: bool = False


class Query(OfCollection, kw_only=True):
    partition_names: list[str] = []
    output_fields: list[str] = field(default_factory=lambda: [_ALL])
    filter: str = ""
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    expr_params: dict[str, Any] = {}
    consistency_level: str = ""
    explain: bool = False
    order_by_fields: list[str] = []
    group_by_fields: list[str] = []


class FunctionScore(Body, kw_only=True):
    functions: list[FunctionBody] = []
    params: dict[str, Any] = {}


class ChainArgument(Body, kw_only=True):
    """Either of the two."""

    column: str | None = None
    literal: Any = None


class ChainExpression(Body, kw_only=True):
    name: str = ""
    args: list[ChainArgument] = []
    params: dict[str, Any] = {}


class ChainOperation(Body, kw_only=True):
    op: str = ""
    expr: ChainExpression | None = None
    inputs: list[str] = []
    outputs: list[str] = []
    params: dict[str, Any] = {}


class Chain(Body, kw_only=True):
    """``stage``: such as ``FunctionChainStageL2Rerank``."""

    name: str = ""
    stage: str = ""
    ops: list[ChainOperation] = []


class Metric(Body, kw_only=True):
    op: str = ""
    field_name: str = ""


class BucketOrder(Body, kw_only=True):
    """``key``: the name of a metric, ``_count`` or ``_key``. ``direction``: ``asc`` or ``desc``."""

    key: str = ""
    direction: str = ""


class HitOrder(Body, kw_only=True):
    field_name: str = ""
    direction: str = ""


class TopHits(Body, kw_only=True):
    size: int = 0
    sort: list[HitOrder] = []


class Aggregation(Body, kw_only=True):
    """``fields``: whose values are the keys of the buckets; ``size``: how many buckets.

    ``subAggregation``: the buckets in each of them.
    """

    fields: list[str] = []
    size: int = 0
    search_size: int = 0
    metrics: dict[str, Metric] = {}
    order: list[BucketOrder] = []
    top_hits: TopHits | None = None
    sub_aggregation: Aggregation | None = None


class Search(OfCollection, kw_only=True):
    """``data``: the query vectors, or texts; or ``ids``, keys of rows with the vectors.

    ``orderByFields``: such as ``price:desc``. ``searchParams``: ``metricType``, ``params`` of the index, and
    others such as ``ignoreGrowing``.
    """

    data: list[Any] = []
    ids: list[Any] = []
    anns_field: str = ""
    partition_names: list[str] = []
    filter: str = ""
    grouping_field: str = ""
    group_size: int = 0
    strict_group_size: bool = False
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    output_fields: list[str] = []
    search_params: dict[str, Any] = {}
    consistency_level: str = ""
    explain: bool = False
    expr_params: dict[str, Any] = {}
    function_score: FunctionScore | None = None
    function_chains: list[Chain] = []
    search_aggregation: Aggregation | None = None
    order_by_fields: list[str] = []
    params: dict[str, Any] = {}


class SubSearch(Body, kw_only=True):
    """One search of a hybrid search. Its ``functionChains`` are of the stages L0 and L1.

    ``param``: as ``params``, by the name that pymilvus gives them.
    """

    data: list[Any]
    anns_field: str = ""
    filter: str = ""
    grouping_field: str = ""
    metric_type: str = ""
    limit: int = 0
    offset: int = 0
    params: dict[str, Any] = {}
    param: dict[str, Any] = {}
    search_params: dict[str, Any] = {}
    expr_params: dict[str, Any] = {}
    ignore_growing: bool = False
    output_fields: list[str] = []
    function_chains: list[Chain] = []
    search_aggregation: Aggregation | None = None


class Rerank(Body, kw_only=True):
    """``strategy``: ``rrf`` or ``weighted``."""

    strategy: str = "rrf"
    params: dict[str, Any] = {}


class HybridSearch(OfCollection, kw_only=True):
    """Chains are those of its searches. Chains of the whole, and aggregations, are refused as over gRPC."""

    search: list[SubSearch]
    rerank: Rerank | None = None
    partition_names: list[str] = []
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    grouping_field: str = ""
    group_size: int = 0
    strict_group_size: bool = False
    output_fields: list[str] = []
    consistency_level: str = ""
    explain: bool = False
    function_score: FunctionScore | None = None
    function_chains: list[Chain] = []
    search_aggregation: Aggregation | None = None
    round_decimal: int = field(default=-1, name="roundDecimal")

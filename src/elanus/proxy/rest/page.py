"""The page docs/rest.md, from the table of endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from elanus.proxy.rest.endpoint import Endpoint
from elanus.proxy.rest.table import PREFIX, TABLE

_INTRODUCTION = """\
# REST API

<!-- Written by `make docs` from `src/elanus/proxy/rest`: edit those files, not this one. -->

Elanus answers Milvus' RESTful API v2 on an HTTP port of its own. `elanus serve` prints its address; by
default it is `http://127.0.0.1:20530`, 1000 above the gRPC port. The settings are in
[configuration.md](configuration.md#http).

```sh
curl http://127.0.0.1:20530/v2/vectordb/collections/create -H 'Content-Type: application/json' \\
  -d '{"collectionName": "books", "dimension": 4}'
curl http://127.0.0.1:20530/v2/vectordb/entities/insert -H 'Content-Type: application/json' \\
  -d '{"collectionName": "books", "data": [{"id": 1, "vector": [0.1, 0.2, 0.3, 0.4], "title": "Dune"}]}'
curl http://127.0.0.1:20530/v2/vectordb/entities/search -H 'Content-Type: application/json' \\
  -d '{"collectionName": "books", "data": [[0.1, 0.2, 0.3, 0.4]], "limit": 3, "outputFields": ["title"]}'
```

## Requests

Every endpoint is a `POST` with a JSON object. A field that an endpoint does not have is refused; null is as
if the field were left out. Numbers may be quoted.

| header | meaning |
|---|---|
| `Authorization: Bearer TOKEN` | `user:password`, or an API key; `Basic` works as well |
| `DB-Name` | the database, unless the body has `dbName` |
| `Request-Timeout` | how long a read may wait and a large search take, in seconds; 30 by default |
| `Accept-Type-Allow-Int64` | how 64-bit integers are written; see below |
| `Idempotency-Key` | names an import, which is then made once; refused for inserts, no effect elsewhere |
| `traceparent` | the trace id of the request (W3C Trace Context) |

Bodies are limited by `proxy.message_max_mb`. A client that reads nothing of a large answer for a minute
loses its connection. Pages of other sites cannot use the API: requests with a foreign `Origin` are refused.
A server that listens on loopback answers only to names of loopback.

## Answers

Success is `{"code": 0, "data": ...}`, an error `{"code": ..., "message": ...}` with the same code and text as
by gRPC. The HTTP status of errors is 200, as in the reference, unless `http.strict_status` is set or the
request has `Accept: application/problem+json`: then it says the kind of the error. An unknown path and a body
that is too large have their statuses (404, 413) in any case. A body is read as JSON whatever its
`Content-Type` says, as in the reference; only what a browser sends needs `application/json` (415). Codes of
this API only:

| code | meaning |
|---|---|
| 1801 | the body is no JSON object, or a field has another type |
| 1802 | a required field is missing |
| 1804 | the rows do not fit the collection |
| 1806 | the keys do not fit the primary key |

A search with several vectors answers with all hits in one list, as the reference does; `topks` says how many
of them each vector has. The key of a hit is `id`, whatever its field is called. `recalls` has the recall of
each vector, if the search asks for it.

A search may have `functionChains`, [chains](searching.md#function-chains) with these members:

```json
[{"stage": "FunctionChainStageL2Rerank", "ops": [
  {"op": "map", "outputs": ["$score"], "expr": {
    "name": "num_combine", "args": [{"column": "$score"}, {"column": "price"}], "params": {"mode": "sum"}}},
  {"op": "sort", "params": {"column": "$score", "desc": true}}
]}]
```

Each of the searches of a hybrid search may have `functionChains` of the stages L0 and L1.

With a `searchAggregation`, `data` has an object for each vector: its `buckets`, each with `key`, `count`,
`metrics`, `hits` and `subGroups`. `aggTopks` says how many they are. The key of a hit in a bucket has the
name of its field.

```json
{"fields": ["brand"], "size": 5, "searchSize": 20, "order": [{"key": "mean", "direction": "asc"}],
 "metrics": {"mean": {"op": "avg", "fieldName": "price"}},
 "topHits": {"size": 3, "sort": [{"fieldName": "price", "direction": "desc"}]},
 "subAggregation": {"fields": ["year"], "size": 2}}
```

Integers are exact in both directions. Answers quote integers beyond 2^53, which JavaScript and others would
round. With `Accept-Type-Allow-Int64: true` they are always numbers, with `false` those of rows are always
texts. Only integers beyond 64 bits, in JSON or dynamic fields, become floating-point numbers.

| type | in a request | in an answer |
|---|---|---|
| Bool | true, false, or a text with one of these | true or false |
| Int8 … Int64 | a whole number, or a text with one | a number; see above |
| Float, Double | a number | a number |
| VarChar | a text | a text |
| JSON | any value; a text that is an object or list stands for that | a text: the document |
| Array | a list, or a text with one | `{"Data": {"LongData": {"data": [1, 2]}}}`, as in the reference |
| FloatVector | a list of numbers | a list of numbers |
| Int8Vector | a list of whole numbers | a list of whole numbers |
| Float16Vector, BFloat16Vector | a list of numbers, or base64 | base64 |
| BinaryVector | base64, or a list of bytes | base64 |
| SparseFloatVector | `{"1": 0.5}`, or `{"indices": [1], "values": [0.5]}` | `{"1": 0.5}` |
| struct array | a list of objects, each with all fields of the struct | a list of objects |

The schema of a collection declares struct arrays in `structFields`: `fieldName`, `nullable`,
`elementTypeParams` with `max_capacity`, and `fields`, whose `dataType` is `Array`, or `ArrayOfVector` for
vectors. A search of `clips[v]` takes vectors, and its hits have an `offset`. With an index whose metric is
`MAX_SIM_*`, it takes lists of vectors.

Members of a row that are no fields are dynamic fields. A null, or a field that a row lacks, is the field's
default value or null.

## The first generation

Programs written for `/v1/vector/` work, too: `collections` and `collections/describe` (GET),
`collections/create`, `collections/drop`, `insert`, `upsert`, `search` (one `vector`), `query`, `get`,
`delete`. Success is the code 200.

## Programs

`/openapi.json` describes all endpoints for generators of clients; a server with users asks for a token there
too. `pymilvus.bulk_writer.bulk_import`, `get_import_progress` and `list_import_jobs` work with this port as
`url`; the files are Parquet, JSON, CSV or NumPy, below the server's directory for imports.
"""


def markdown() -> str:
    """Return the text of the page."""
    parts = [_INTRODUCTION, f"\n## Endpoints\n\nThere are {len(TABLE)}, all below `{PREFIX.rstrip('/')}`.\n"]
    by_family = groupby(TABLE.values(), lambda found: found.path.rpartition("/")[0])
    seen: set[str] = set()
    for family, endpoints in by_family:
        title = family.replace("_", " ") + (" (continued)" if family in seen else "")
        seen.add(family)
        parts.append(
            f"\n### {title}\n\n| endpoint | what it does | fields (required ones in bold) |\n|---|---|---|\n"
        )
        parts.extend(_line(endpoint) for endpoint in endpoints)
    return "".join(parts)


def _line(endpoint: Endpoint) -> str:
    return f"| `{endpoint.path}` | {endpoint.summary} | {', '.join(_fields(endpoint.body))} |\n"


def _fields(body: type[Any]) -> Iterator[str]:
    fields = msgspec.structs.fields(body)
    for field in sorted(fields, key=lambda field: not field.required):
        yield f"**`{field.encode_name}`**" if field.required else f"`{field.encode_name}`"

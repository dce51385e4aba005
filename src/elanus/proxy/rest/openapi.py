"""The OpenAPI 3.1 document of all endpoints, from their table and the structs of their bodies."""

from __future__ import annotations

from typing import Any

import msgspec

from elanus import __version__
from elanus.proxy.rest.endpoint import Endpoint
from elanus.proxy.rest.table import PREFIX, TABLE

_HEADERS = (
    ("DB-Name", "The database, unless the body names one.", {"type": "string"}),
    ("Request-Timeout", "How long a read may wait, in seconds.", {"type": "number", "default": 30}),
    (
        "Accept-Type-Allow-Int64",
        "`true`: 64-bit integers are numbers; `false`: those of rows are texts; "
        "by default they are texts only beyond 2^53.",
        {"type": "string", "enum": ["true", "false"]},
    ),
)
_ANSWER: dict[str, Any] = {
    "type": "object",
    "required": ["code"],
    "properties": {
        "code": {"type": "integer", "description": "0: success"},
        "message": {"type": "string", "description": "The error, if there is one."},
        "data": {"description": "The answer, if there is no error."},
        "cost": {"type": "integer", "description": "Always 0."},
        "topks": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Searches: how many of the hits each query has.",
        },
        "aggTopks": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Searches with an aggregation: how many buckets each query has.",
        },
        "recalls": {
            "type": "array",
            "items": {"type": "number"},
            "description": "Searches that ask for it: the recall of each query.",
        },
    },
}


def document() -> dict[str, Any]:
    """Return the document."""
    kinds = list({endpoint.body: None for endpoint in TABLE.values()})
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    bodies = dict(zip(kinds, schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Elanus",
            "version": __version__,
            "description": "Milvus' RESTful API v2. Errors have the HTTP status 200 and a code that is not "
            "0, unless the server or the request asks for HTTP statuses.",
        },
        "security": [{}, {"token": []}],
        "paths": {
            PREFIX + path: {"post": _operation(found, bodies[found.body])} for path, found in TABLE.items()
        },
        "components": {
            "schemas": {**components, "Answer": _ANSWER},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`user:password`, or an API key.",
                }
            },
            "parameters": {
                name: {"name": name, "in": "header", "description": text, "schema": schema}
                for name, text, schema in _HEADERS
            },
        },
    }


def _operation(endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": endpoint.path.replace("/", "_"),
        "summary": endpoint.summary,
        "tags": [endpoint.path.rpartition("/")[0]],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name, _, _ in _HEADERS],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {
                "description": "The answer, or an error with a code that is not 0.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}},
            }
        },
    }

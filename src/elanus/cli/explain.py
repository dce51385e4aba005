"""`elanus explain`: run a search or a query of a running server, and show what it did.

It is sent over the REST API, which has the explanation as a member of the answer.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from elanus.cli.remote import NoAnswer, not_http

_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Explained:
    """The read to explain. ``vector``: JSON, a vector or a text; ``ids``: search with the vectors of these
    rows. Without either, it is a query. ``params``: search parameters of the index, as JSON values."""

    database: str
    collection: str
    filter: str = ""
    vector: str = ""
    ids: Sequence[str] = ()
    anns_field: str = ""
    limit: int = 10
    output_fields: Sequence[str] = ()
    consistency: str = ""
    params: Mapping[str, str] = field(default_factory=dict)


def explain(base_url: str, token: str, read: Explained) -> dict[str, object]:
    """Return the explanation of the read: ``text`` for people, and its values. Raises `NoAnswer`."""
    kind = "search" if read.vector or read.ids else "query"
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    url, body = f"{base_url}/v2/vectordb/entities/{kind}", msgspec.json.encode(_body(read))
    try:
        request = urllib.request.Request(url, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            answer = msgspec.json.decode(response.read(), type=dict[str, object])
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoAnswer(f"no REST API answers at {base_url}: {reason}; see http.enabled") from None
    except msgspec.DecodeError as error:
        raise NoAnswer(f"the answer is no JSON object: {error}") from None
    except (ValueError, http.client.HTTPException) as error:
        raise NoAnswer(not_http(base_url, error)) from None
    if answer.get("code"):
        raise NoAnswer(f"{kind} failed with code {answer['code']}: {answer.get('message', '')}")
    found = answer.get("explain")
    if not isinstance(found, dict):
        raise NoAnswer("the answer has no explanation: the server is of another release")
    return found


def _body(read: Explained) -> dict[str, object]:
    body: dict[str, object] = {
        "dbName": read.database,
        "collectionName": read.collection,
        "filter": read.filter,
        "limit": read.limit,
        "explain": True,
    }
    if read.output_fields:
        body["outputFields"] = list(read.output_fields)
    if read.consistency:
        body["consistencyLevel"] = read.consistency
    if read.vector or read.ids:
        body["annsField"] = read.anns_field
        body["searchParams"] = {"params": {name: _value(text) for name, text in read.params.items()}}
    if read.ids:
        body["ids"] = [_value(key) for key in read.ids]
    elif read.vector:
        body["data"] = [_value(read.vector)]
    return body


def _value(text: str) -> object:
    """Return a JSON value; other text is a string."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text

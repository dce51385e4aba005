"""`elanus explain`: run a search or a query of a running server, and show what it did.

It is sent over the REST API, which has the explanation as a member of the answer.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from elanus.cli.remote import NoAnswer, not_http
from elanus.rpc.security import ClientSecurity

_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Explained:
    """The read to explain. ``vector``: a vector as JSON, or a text; ``ids``: search with the vectors of these
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


def explain(
    base_url: str, token: str, read: Explained, security: ClientSecurity | None = None
) -> dict[str, object]:
    """Return the explanation of the read: ``text`` for people, and its values. Raises `NoAnswer`.

    ``security``: how to check the certificate behind an ``https`` URL.
    """
    kind = "search" if read.vector or read.ids else "query"
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    url, body = f"{base_url}/v2/vectordb/entities/{kind}", msgspec.json.encode(_body(read))
    try:
        request = urllib.request.Request(url, data=body, headers=headers)
        context = None if security is None else _context(security)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as response:
            answer = msgspec.json.decode(response.read(), type=dict[str, object])
    except urllib.error.HTTPError as error:
        answer = _refusal(error)
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoAnswer(_unreached(base_url, reason)) from None
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


class _Context(ssl.SSLContext):
    """Checks the certificate against ``server_name``, if there is one, and not the host of the URL."""

    server_name = ""

    def wrap_socket(self, sock: socket.socket, *args: Any, **options: Any) -> ssl.SSLSocket:
        if self.server_name:
            options["server_hostname"] = self.server_name
        return super().wrap_socket(sock, *args, **options)


def _context(security: ClientSecurity) -> ssl.SSLContext:
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.server_name = security.server_name
    if security.ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(security.ca)
    return context


def _refusal(error: urllib.error.HTTPError) -> dict[str, object]:
    """Return the answer of a server that gives errors their HTTP status. Raises `NoAnswer` for others."""
    try:
        answer = msgspec.json.decode(error.read(), type=dict[str, object])
    except msgspec.DecodeError:
        answer = {}
    if not answer.get("code"):
        raise NoAnswer(_unreached(error.url, f"{error.code} {error.reason}")) from None
    return answer


def _unreached(url: str, reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {url} is refused: {reason.verify_message}; name the CA that signed it with "
            "--tls-ca and, if the address is another, what it is issued for with --tls-server-name"
        )
    return f"no REST API answers at {url}: {reason}; see http.enabled"


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
        body["ids"] = list(read.ids)  # as texts: the server reads those of Int64 keys
    elif read.vector:
        vector = _value(read.vector)
        body["data"] = [vector if isinstance(vector, list | dict) else read.vector]
    return body


def _value(text: str) -> object:
    """Return a JSON value; other text is a string."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text

"""The options of ``spark.read.format("elanus")``: parsed, checked, with what they default to."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from elanus.core.errors import InvalidParameter, MissingParameter
from elanus.core.pins import PIN_MS_MAX
from elanus.rpc.security import ClientSecurity
from elanus.rpc.uri import DEFAULT_PORT, address_in, security_for

PORT_MAX = 65_535
DEFAULT_LEASE_S = 3600.0
_KNOWN = frozenset(
    {
        "uri",
        "host",
        "port",
        "tls_ca",
        "tls_server_name",
        "token",
        "database",
        "collection",
        "partitions",
        "columns",
        "filter",
        "lease_s",
        "store",
    }
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """``address``: host:port of the server; ``security``: how its certificate is checked, None without TLS.

    Empty ``partitions`` or ``columns``: all of them.

    ``filter``: rows to read, in Elanus's filter language. ``store``: where the server's object store is
    found from here, "" for where the server says. ``token``: ``user:password``, "" where nobody signs in.
    """

    address: str
    security: ClientSecurity | None
    database: str
    collection: str
    partitions: tuple[str, ...]
    columns: tuple[str, ...]
    filter: str
    lease_ms: int
    store: str
    token: str = field(default="", repr=False)


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Raises `InvalidParameter`, `MissingParameter`. Names count in any case, as Spark has it."""
    options = {name.lower(): value for name, value in given.items()}
    if unknown := sorted(options.keys() - _KNOWN):
        raise InvalidParameter(f"unknown option {unknown[0]}: there are {', '.join(sorted(_KNOWN))}")
    if not options.get("collection"):
        raise MissingParameter('no collection: give its name, .option("collection", "docs")')
    return ReadOptions(
        address=_address(options),
        security=security_for(
            options.get("uri", ""), options.get("tls_ca", ""), options.get("tls_server_name", "")
        ),
        database=options.get("database", "default"),
        collection=options["collection"],
        partitions=_names(options.get("partitions", "")),
        columns=_names(options.get("columns", "")),
        filter=options.get("filter", ""),
        lease_ms=_lease_ms(options.get("lease_s", "")),
        store=options.get("store", ""),
        token=options.get("token", ""),
    )


def _address(options: Mapping[str, str]) -> str:
    uri = options.get("uri", "")
    if not uri:
        return f"{options.get('host', '127.0.0.1')}:{_port(options.get('port', str(DEFAULT_PORT)))}"
    if "host" in options or "port" in options:
        raise InvalidParameter("give either uri, or host and port")
    return address_in(uri)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= PORT_MAX:
        raise InvalidParameter(f"port is {text!r}: give a number from 1 to {PORT_MAX}")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _lease_ms(text: str) -> int:
    longest_s = PIN_MS_MAX // 1000
    with contextlib.suppress(ValueError):
        seconds = float(text or DEFAULT_LEASE_S)
        if 0.001 <= seconds <= longest_s:
            return round(seconds * 1000)
    raise InvalidParameter(f"lease_s is {text!r}: give a number of seconds, {longest_s} at most")

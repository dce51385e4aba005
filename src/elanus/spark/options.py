"""The options of ``spark.read.format("elanus")``: parsed, checked, with what they default to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from elanus.core.errors import InvalidParameter, MissingParameter

DEFAULT_PORT = 19530
DEFAULT_LEASE_S = 3600.0
_KNOWN = frozenset(
    {"uri", "host", "port", "database", "collection", "partitions", "columns", "filter", "lease_s", "store"}
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """``address``: host:port of the server. Empty ``partitions`` or ``columns``: all of them.

    ``filter``: rows to read, in Elanus's filter language. ``store``: where the server's object store is
    found from here, "" for where the server says.
    """

    address: str
    database: str
    collection: str
    partitions: tuple[str, ...]
    columns: tuple[str, ...]
    filter: str
    lease_ms: int
    store: str


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Raises `InvalidParameter`, `MissingParameter`. Names count in any case, as Spark has it."""
    options = {name.lower(): value for name, value in given.items()}
    if unknown := sorted(options.keys() - _KNOWN):
        raise InvalidParameter(f"unknown option {unknown[0]}: there are {', '.join(sorted(_KNOWN))}")
    if not options.get("collection"):
        raise MissingParameter('no collection: give its name, .option("collection", "docs")')
    return ReadOptions(
        address=_address(options),
        database=options.get("database", "default"),
        collection=options["collection"],
        partitions=_names(options.get("partitions", "")),
        columns=_names(options.get("columns", "")),
        filter=options.get("filter", ""),
        lease_ms=_lease_ms(options.get("lease_s", "")),
        store=options.get("store", ""),
    )


def _address(options: Mapping[str, str]) -> str:
    uri = options.get("uri", "")
    if not uri:
        return f"{options.get('host', '127.0.0.1')}:{options.get('port', DEFAULT_PORT)}"
    if "host" in options or "port" in options:
        raise InvalidParameter("give either uri, or host and port")
    parts = urlsplit(uri if "://" in uri else f"http://{uri}")
    if parts.scheme not in ("http", "tcp") or not parts.hostname:
        raise InvalidParameter(f"uri {uri!r}: expected the form http://host:{DEFAULT_PORT}, without TLS")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or DEFAULT_PORT}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _lease_ms(text: str) -> int:
    try:
        seconds = float(text or DEFAULT_LEASE_S)
    except ValueError:
        raise InvalidParameter(f"lease_s is {text!r}: give a number of seconds") from None
    return round(seconds * 1000)

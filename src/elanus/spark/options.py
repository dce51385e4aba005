"""The options of the format ``elanus``, for reads and for writes: parsed, checked, with their defaults."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from elanus.core.errors import InvalidParameter, MissingParameter
from elanus.core.imports import WriteMode
from elanus.core.limits import WRITE_ID_LENGTH_MAX
from elanus.core.moments import parse_moment
from elanus.core.pins import PIN_MS_MAX
from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp, compose
from elanus.rpc.security import ClientSecurity
from elanus.rpc.uri import DEFAULT_PORT, address_in, security_for

PORT_MAX = 65_535
DEFAULT_LEASE_S = 3600.0
DEFAULT_CONNECT_S = 5.0
CONNECT_S_MAX = 600.0
WAIT_SERVED_S_MAX = 86_400.0
_SERVER = frozenset(
    {"uri", "host", "port", "tls_ca", "tls_server_name", "token", "database", "collection", "connect_s"}
)
_READ = _SERVER | {"partitions", "columns", "filter", "lease_s", "store", "changes_from", "keep_as", "as_of"}
_WRITE = _SERVER | {
    "partition",
    "write_id",
    "stream_id",
    "import_directory",
    "checkpointlocation",
    "operation",
    "wait_served_s",
}
_OPERATIONS = (WriteMode.APPEND, WriteMode.UPSERT, WriteMode.DELETE)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """``address``: host:port of the server; ``security``: how its certificate is checked, None without TLS.

    Empty ``partitions`` or ``columns``: all of them.

    ``filter``: rows to read, in Elanus's filter language. ``store``: where the server's object store is
    found from here, "" for where the server says. ``token``: ``user:password``, "" where nobody signs in.
    ``changes_from``: the timestamp to read changes from, None to read rows; ``keep_as``: the name under which
    these changes are kept, "" for none. ``as_of``: the moment to read as of, None: the present.
    ``connect_s``: how long to wait for the server.
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
    changes_from: Timestamp | None = None
    keep_as: str = ""
    as_of: Timestamp | None = None
    token: str = field(default="", repr=False)
    connect_s: float = DEFAULT_CONNECT_S


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """``partition`` "": the default one. ``write_id``: the name of the write, "" for a new one.

    ``stream_id``: the name of a streaming query, whose batches are writes of their own. ``import_directory``:
    where the server's import directory is found from here, "" for where the server says. ``operation``: what
    the write does. ``wait_served_s``: how long the commit waits until searches and queries find the write, 0:
    not at all.
    """

    address: str
    security: ClientSecurity | None
    database: str
    collection: str
    partition: str
    write_id: str
    stream_id: str
    import_directory: str
    operation: WriteMode = WriteMode.APPEND
    token: str = field(default="", repr=False)
    connect_s: float = DEFAULT_CONNECT_S
    wait_served_s: float = 0.0


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises as `parse_options` does. A streaming query's checkpoint names it unless ``stream_id`` does."""
    options = _checked(given, _WRITE)
    checkpoint = options.get("checkpointlocation", "")
    digest = hashlib.sha256(checkpoint.encode()).hexdigest()[:32] if checkpoint else ""
    return WriteOptions(
        address=_address(options),
        security=_security(options),
        database=options.get("database", "default"),
        collection=options["collection"],
        partition=options.get("partition", ""),
        write_id=_write_name(options, "write_id", ""),
        stream_id=_write_name(options, "stream_id", digest),
        import_directory=options.get("import_directory", ""),
        operation=_operation(options.get("operation", "")),
        token=options.get("token", ""),
        connect_s=_connect_s(options.get("connect_s", "")),
        wait_served_s=_wait_served_s(options.get("wait_served_s", "0")),
    )


def _write_name(options: Mapping[str, str], option: str, default: str) -> str:
    name = options.get(option, default)
    if len(name) > WRITE_ID_LENGTH_MAX:
        raise InvalidParameter(f"{option} has {len(name)} characters: give {WRITE_ID_LENGTH_MAX} at most")
    return name


def _checked(given: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    if unknown := sorted(options.keys() - known):
        raise InvalidParameter(f"unknown option {unknown[0]}: there are {', '.join(sorted(known))}")
    if not options.get("collection"):
        raise MissingParameter(
            'no collection: give its name, .option("collection", "docs"), or in SQL by options (collection '
            "'docs') of a table, and with (collection = 'docs') of an insert"
        )
    return options


def _operation(name: str) -> WriteMode:
    names = [mode.value for mode in _OPERATIONS]
    if name.lower() not in ("", *names):
        raise InvalidParameter(f"operation is {name!r}: give one of {', '.join(names)}")
    return WriteMode(name.lower() or WriteMode.APPEND)


def _security(options: Mapping[str, str]) -> ClientSecurity | None:
    return security_for(options.get("uri", ""), options.get("tls_ca", ""), options.get("tls_server_name", ""))


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Raises `InvalidParameter`, `MissingParameter`. Names count in any case, as Spark has it."""
    options = _checked(given, _READ)
    return ReadOptions(
        address=_address(options),
        security=_security(options),
        database=options.get("database", "default"),
        collection=options["collection"],
        partitions=_names(options.get("partitions", "")),
        columns=_names(options.get("columns", "")),
        filter=options.get("filter", ""),
        lease_ms=_lease_ms(options.get("lease_s", "")),
        store=options.get("store", ""),
        changes_from=_changes_from(options),
        keep_as=options.get("keep_as", ""),
        as_of=_as_of(options.get("as_of", "")),
        token=options.get("token", ""),
        connect_s=_connect_s(options.get("connect_s", "")),
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


def _connect_s(text: str) -> float:
    with contextlib.suppress(ValueError):
        seconds = float(text or DEFAULT_CONNECT_S)
        if 0.1 <= seconds <= CONNECT_S_MAX:
            return seconds
    raise InvalidParameter(f"connect_s is {text!r}: give a number of seconds, from 0.1 to {CONNECT_S_MAX:g}")


def _wait_served_s(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) <= WAIT_SERVED_S_MAX:
            return seconds
    raise InvalidParameter(
        f"wait_served_s is {text!r}: give a number of seconds, from 0 to {WAIT_SERVED_S_MAX:g}"
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _changes_from(options: Mapping[str, str]) -> Timestamp | None:
    text = options.get("changes_from", "")
    if not text:
        if options.get("keep_as"):
            raise InvalidParameter("keep_as keeps changes: give the timestamp to begin at, changes_from")
        return None
    if (since := _hybrid(text)) is None:
        raise InvalidParameter(f"changes_from is {text!r}: give a hybrid timestamp, a number")
    for name in ("partitions", "filter", "as_of"):
        if options.get(name):
            raise InvalidParameter(f"{name} does not apply to changes: they are of the whole collection")
    return since


def _hybrid(text: str) -> Timestamp | None:
    """Return a hybrid timestamp, None for anything else: a number of more than 63 bits, too."""
    if not text.isdecimal() or len(text) > len(str(MAX_TIMESTAMP)) or int(text) > MAX_TIMESTAMP:
        return None
    return Timestamp(int(text))


def _as_of(text: str) -> Timestamp | None:
    """A hybrid timestamp, or a time (in UTC without an offset)."""
    if not text:
        return None
    if (moment := _hybrid(text)) is not None:
        return moment
    try:
        return compose(parse_moment(text) // 1000)
    except InvalidParameter:
        raise InvalidParameter(
            f"as_of is {text!r}: give a hybrid timestamp, or a time such as 2026-11-23T12:00:00Z"
        ) from None


def _lease_ms(text: str) -> int:
    longest_s = PIN_MS_MAX // 1000
    with contextlib.suppress(ValueError):
        seconds = float(text or DEFAULT_LEASE_S)
        if 0.001 <= seconds <= longest_s:
            return round(seconds * 1000)
    raise InvalidParameter(f"lease_s is {text!r}: give a number of seconds, {longest_s} at most")

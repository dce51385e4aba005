"""The address of a JetStream log, as a value and as the URL that is passed to Spark tasks.

``nats://host:4222,other:4222/prefix?credentials=/etc/elanus/nats.creds&replicas=3``. The scheme ``tls``
means an encrypted connection. The path is the prefix of all streams, ``elanus`` when there is none.
The URL contains no secrets: ``credentials`` names a file that every process that opens the log can read.
With ``monitor=8222`` the servers' monitoring is asked how durable they make what they acknowledge
(`elanus.nats.durability`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from elanus.core.backends import names_server
from elanus.core.errors import InvalidParameter

SCHEMES = frozenset({"nats", "tls"})
DEFAULT_PREFIX = "elanus"
REPLICAS_MAX = 5
_DEFAULT_PORT = 4222
_PORT_MAX = 65_535
FORM = "nats://host:port[,host:port]/prefix, optionally with ?credentials=/file&replicas=1..5&monitor=port"


@dataclass(frozen=True, slots=True)
class NatsSource:
    """``servers``: URLs without a path. ``replicas``: copies of each stream that is created.

    ``monitor_port``: where each server's monitoring is, 0 if it is not to be asked.
    """

    servers: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    credentials: Path | None = None
    replicas: int = 1
    monitor_port: int = 0

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL. Raises `InvalidParameter`, which never repeats a password."""
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise InvalidParameter(
                "the NATS URL has a user in it: put user and password into a file and name that with "
                "?credentials=/file"
            )
        hosts = [host for host in parts.netloc.split(",") if host]
        query = parse_qs(parts.query, keep_blank_values=True)
        prefix = unquote(parts.path.strip("/")) or DEFAULT_PREFIX
        replicas = query.pop("replicas", ["1"])[-1]
        credentials = query.pop("credentials", [""])[-1]
        monitor = query.pop("monitor", ["0"])[-1]
        wrong = (
            parts.scheme not in SCHEMES
            or not hosts
            or not all(map(names_server, hosts))
            or bool(query)
            or not prefix.replace("-", "").replace("_", "").isalnum()
            or replicas not in map(str, range(1, REPLICAS_MAX + 1))
            or not (monitor.isascii() and monitor.isdigit() and int(monitor) <= _PORT_MAX)
        )
        if wrong:
            raise InvalidParameter(f"log {url!r}: expected a URL of the form {FORM}")
        servers = tuple(
            f"{parts.scheme}://{host if ':' in host else f'{host}:{_DEFAULT_PORT}'}" for host in hosts
        )
        file = Path(credentials) if credentials else None
        return cls(servers, prefix, file, int(replicas), int(monitor))

    @property
    def url(self) -> str:
        """The URL, from which `parse` restores this value."""
        scheme = self.servers[0].partition("://")[0]
        hosts = ",".join(server.partition("://")[2] for server in self.servers)
        query: dict[str, str] = {}
        if self.credentials is not None:
            query["credentials"] = str(self.credentials)
        if self.replicas != 1:
            query["replicas"] = str(self.replicas)
        if self.monitor_port:
            query["monitor"] = str(self.monitor_port)
        return f"{scheme}://{hosts}/{self.prefix}" + (f"?{urlencode(query)}" if query else "")

"""The settings of the REST API."""

from __future__ import annotations

from pydantic import Field

from elanus.server.settings_base import PORT_MAX, Section

_PORT_ABOVE = 1000


class HttpSettings(Section):
    """The REST API (docs/rest.md), on its own port. It listens on `proxy.host` and shares the threads, the
    request limit (`proxy.message_max_mb`) and the certificate of the first proxy."""

    enabled: bool = True
    """Whether the port is opened."""
    port: int = Field(default=-1, ge=-1, le=PORT_MAX)
    """The port to listen on; 0 takes a free one. -1: 1000 above `proxy.port` (20530), or a free one if
    `proxy.port` is 0 or another program uses the port. The server prints the address when it starts."""
    console: bool = True
    """Whether the port serves the web console at `/ui/` (docs/console.md)."""
    strict_status: bool = False
    """Whether errors have an HTTP error status. Otherwise their status is 200, as in the reference, and
    only the body has the code. A client that sends `Accept: application/problem+json` gets statuses in any
    case."""

    @property
    def is_port_chosen(self) -> bool:
        """Whether the port was set: if it is taken, the server does not start."""
        return self.port >= 0

    def port_for(self, proxy_port: int) -> int:
        """Return the port to listen on next to a proxy's; 0: a free one."""
        if self.port >= 0:
            return self.port
        above = proxy_port + _PORT_ABOVE
        return above if proxy_port and above <= PORT_MAX else 0

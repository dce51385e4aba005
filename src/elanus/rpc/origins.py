"""Where an HTTP request says that it comes from and goes to: its headers ``Origin`` and ``Host``.

Any name can be made to resolve to 127.0.0.1, so a page of any name can call a server on loopback. Only the
names of loopback itself are safe.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_LOCAL_NAMES = frozenset({"localhost", ""})


def host_of(place: str) -> str:
    """Return the host of a header ``Host``, without its port; a text that no host has if it is none."""
    try:
        return urlsplit(f"//{place}").hostname or ""
    except ValueError:
        return "?"


def place_of(origin: str) -> str:
    """Return host and port of an origin, in lower case; a text that no host has if it is none."""
    try:
        return urlsplit(origin).netloc.lower() or "?"
    except ValueError:
        return "?"


def is_local_name(host: str) -> bool:
    """Whether a host names this machine's loopback, whatever the name service says."""
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

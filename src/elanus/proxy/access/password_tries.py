"""How many wrong passwords may be tried from one address: a token bucket for each.

A guess costs its sender nothing and the server a hash, of which two are computed at a time. Without a limit,
one address could try a hundred passwords a second, and keep everybody else's first sign-in waiting.
"""

from __future__ import annotations

import ipaddress
import math
import threading
from collections.abc import Callable

from elanus.core.errors import Unauthenticated

_PLACES_MAX = 10_000
"""The oldest address is forgotten when there are more."""
_NETWORK_BITS = 64
"""The prefix of an IPv6 network: a client with one address there usually has the whole network."""


class PasswordTries:
    """Safe to call from any thread. ``per_minute``: wrong passwords of one address, 0 for no limit.

    ``now_s``: a clock in seconds.
    """

    def __init__(self, per_minute: int, now_s: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._now_s = now_s
        self._left: dict[str, tuple[float, float]] = {}
        """The tries that an address had left, and when, in seconds."""
        self._lock = threading.Lock()

    def check(self, origin: str) -> None:
        """Raises `Unauthenticated` if `begin` would, and takes nothing."""
        if self._per_minute:
            with self._lock:
                self._some_left(place_of(origin))

    def begin(self, origin: str) -> None:
        """Take a try. ``origin``: an address as gRPC or HTTP reports it. Raises `Unauthenticated`."""
        if not self._per_minute:
            return
        place = place_of(origin)
        with self._lock:
            self._keep(place, self._some_left(place) - 1)

    def succeeded(self, origin: str) -> None:
        """Give the try back: the password was right."""
        if not self._per_minute:
            return
        place = place_of(origin)
        with self._lock:
            self._keep(place, min(self._now_left(place) + 1, self._per_minute))

    def _some_left(self, place: str) -> float:
        """The tries left, at least one. Raises `Unauthenticated`."""
        left = self._now_left(place)
        if left < 1:
            wait_s = math.ceil((1 - left) * 60 / self._per_minute)
            raise Unauthenticated(f"too many wrong passwords from {place}: try again in {wait_s} s")
        return left

    def _now_left(self, place: str) -> float:
        left, at_s = self._left.get(place, (self._per_minute, 0.0))
        grown = max(0.0, self._now_s() - at_s) * self._per_minute / 60
        return min(left + grown, self._per_minute)

    def _keep(self, place: str, left: float) -> None:
        self._left.pop(place, None)
        if len(self._left) >= _PLACES_MAX:
            del self._left[next(iter(self._left))]
        self._left[place] = (left, self._now_s())


def place_of(origin: str) -> str:
    """Return the address without scheme and port, of IPv6 the network; a text that is no address as it is."""
    host = origin.removeprefix("ipv4:").removeprefix("ipv6:").replace("%5B", "[").replace("%5D", "]")
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))

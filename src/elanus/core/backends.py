"""The backends of a port, by the scheme of the URL that selects one.

The log, the query channels, the metadata and the object store each have one table of this kind, in the
module ``backends`` of their package. Code that opens a backend, checks a setting or describes one looks up
the scheme there, so a backend is added with a package of its own and a line in that table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from elanus.core.errors import InvalidParameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The declaration of a backend.

    ``form``: an example of its URLs, for messages. ``check(url)`` raises `InvalidParameter` for a URL that is
    not of this form; it opens nothing and reads no file. ``shared``: whether the processes of a cluster can
    use it together; a backend in local files may serve one machine only.
    """

    form: str
    check: Callable[[str], object]
    shared: bool = True


B = TypeVar("B", bound=Backend)


@dataclass(frozen=True, slots=True)
class Backends(Generic[B]):
    """``port``: the name of what the backends are for; ``setting``: the setting that selects one."""

    port: str
    setting: str
    by_scheme: dict[str, B]

    def of(self, url: str) -> B:
        """Return the backend that the URL's scheme selects. Raises `InvalidParameter` for an unknown
        scheme."""
        backend = self.by_scheme.get(scheme_of(url))
        if backend is None:
            example = next(iter(self.by_scheme.values())).form
            raise InvalidParameter(
                f"{self.port} {without_user(url)!r}: unknown scheme {scheme_of(url)!r}; the setting "
                f"{self.setting} takes {', '.join(self.by_scheme)}, as in {example}"
            )
        return backend

    def checked(self, url: str) -> str:
        """Return the URL. Raises `InvalidParameter` unless a backend can be opened with it."""
        self.of(url).check(url)
        return url

    @property
    def shared(self) -> dict[str, B]:
        """Those that the processes of a cluster can use together, by scheme."""
        return {scheme: backend for scheme, backend in self.by_scheme.items() if backend.shared}


def scheme_of(url: str) -> str:
    return urlsplit(url).scheme


def names_server(place: str) -> bool:
    """Whether this is ``host`` or ``host:port``, with a port that exists."""
    try:
        parts = urlsplit(f"//{place}")
        return bool(parts.hostname) and not place.endswith(":") and parts.port != 0
    except ValueError:  # the port is no number, or too large
        return False


def without_user(url: str) -> str:
    """Return the URL without the user and the password in it, for messages."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2] if separator else url


def identity_of_path(url: str) -> str:
    """Scheme and path: what identifies data on servers whose hosts and parameters may change."""
    parts = urlsplit(url)
    return f"{parts.scheme}:/{parts.path.strip('/')}"


def identity_of_place(url: str) -> str:
    """Scheme, host and path: what identifies data in a bucket or a directory."""
    parts = urlsplit(url)
    return f"{parts.scheme}:{parts.netloc}/{parts.path.strip('/')}"

"""The location of an object store in a bucket, as a value.

``s3://bucket/prefix?endpoint=https://host:port&region=eu-west-1&credentials=/etc/elanus/s3``. The URL has no
secrets in it: ``credentials`` names a file that every process that opens the store can read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from elanus.core.backends import without_user
from elanus.core.errors import InvalidParameter

FORM = "s3://bucket/prefix, optionally with ?endpoint=https://host:port&region=name&credentials=/file"
_PARAMETERS = ("endpoint", "region", "credentials")


@dataclass(frozen=True, slots=True)
class S3Source:
    """Parameters that the URL does not have are ``""``."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    credentials: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises `InvalidParameter`, which never repeats a password."""
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme != "s3" or not parts.hostname or parts.hostname != parts.netloc:
            raise InvalidParameter(f"object store {without_user(url)!r}: expected a URL of the form {FORM}")
        if unknown := query.keys() - set(_PARAMETERS):
            raise InvalidParameter(
                f"object store {url!r}: unknown parameters {sorted(unknown)}; expected {FORM}"
            )
        return cls(parts.netloc, unquote(parts.path.strip("/")), **query)

    @property
    def url(self) -> str:
        """The URL, from which `parse` restores this value."""
        query = {name: value for name in _PARAMETERS if (value := getattr(self, name))}
        return f"s3://{self.bucket}/{self.prefix}" + (f"?{urlencode(query)}" if query else "")

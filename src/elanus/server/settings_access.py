"""The settings about who may use a port for clients, and about the record of that."""

from __future__ import annotations

import ipaddress
from typing import Self

from pydantic import Field, model_validator

from elanus.server.settings_base import Host, Section, all_or_none

DEFAULT_ROOT_PASSWORD = "Milvus"
"""The reference's: what programs sign in with that were written for a new server."""


class AccessSettings(Section):
    """Access to the ports for clients: a part of the settings of proxies."""

    host: Host = "127.0.0.1"
    """The address to listen on. Anything but loopback needs `authorization_enabled`, or `open_to_all`."""
    authorization_enabled: bool = False
    """Whether clients must sign in as a user and are limited to what its roles allow (docs/security.md)."""
    open_to_all: bool = False
    """Whether a server without `authorization_enabled` may listen on another address than loopback. Anyone
    who reaches that address may then read, change and delete all data."""
    root_password: str = Field(default="", pattern=r"^(.{6,72})?$", repr=False)
    """The password of the user root until it is changed for the first time. If none is set, it is the
    reference's (`Milvus`) if `host` is loopback; on any other address root then cannot sign in."""
    wrong_passwords_per_minute: int = Field(default=30, ge=0)
    """How many wrong passwords one address (of IPv6: one /64 network) may try per minute. Further attempts
    are refused unchecked until the minute has passed. Clients that have signed in before are not affected.
    Set 0, for no limit, if all clients share one address, as behind a proxy that hides theirs."""
    tls_cert: str = ""
    """A file with the server's certificate (PEM, followed by intermediate ones). If it is set, clients
    must connect with TLS; they need no certificate of their own (docs/production.md)."""
    tls_key: str = ""
    """The file with the certificate's key (PEM, without a password)."""
    tls_client_ca: str = ""
    """A file with the CA of clients (PEM). If it is set, clients must present a certificate signed by this
    CA, in addition to their password or API key."""

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Self:
        all_or_none(tls_cert=self.tls_cert, tls_key=self.tls_key)
        return self

    @model_validator(mode="after")
    def _clients_ca_has_a_certificate(self) -> Self:
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError(
                "tls_client_ca is set and tls_cert is not: TLS needs a certificate of the server"
            )
        return self

    @property
    def is_on_loopback(self) -> bool:
        """Whether only programs of this machine reach the port."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def initial_root_password(self) -> str:
        """The password that `root_password` stands for; "": root cannot sign in."""
        return self.root_password or (DEFAULT_ROOT_PASSWORD if self.is_on_loopback else "")


class AuditSettings(Section):
    """The audit log of the proxies: which user made which call (docs/security.md)."""

    enabled: bool = False
    """Whether the audit log is written."""
    directory: str = ""
    """Where `audit.log` is written; without a value, the directory `audit` in the data directory."""
    data_share: float = Field(default=0.01, ge=0, le=1)
    """Of calls that only inspect, or that read or write rows, the fraction that is recorded. All other
    calls are recorded."""
    file_max_mb: int = Field(default=100, ge=1, le=10_000)
    """The size at which a file is rotated."""
    files_max: int = Field(default=10, ge=1, le=1000)
    """The number of files that are kept, including the current one."""

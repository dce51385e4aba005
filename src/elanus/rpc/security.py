"""TLS: mutual between the processes of a cluster; towards clients server-only, or mutual on request.

A process with a certificate of the cluster's CA belongs to the cluster. Every process presents its own to the
processes it calls and to those that call it, and checks theirs against one CA, which should sign nothing
else. There are no users and no rights beyond that: a member of the cluster may call every interface.
Certificates between processes are read once; new ones take effect by restarting one process at a time. Those
of a port for clients are read again when they change.

The files are tried out before anything is served (`RpcSecurity.check`), by a handshake of the certificate
with itself in memory: anything that would make all peers refuse it is reported at startup, with the name of
the file.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import grpc
import structlog

from elanus.core.errors import InvalidParameter

ALPN = "h2"
_log = structlog.get_logger("rpc")
_HANDSHAKE_FLIGHTS_MAX = 10
T = TypeVar("T")


class DialSecurity(Protocol):
    """How a process checks another one that it calls. ``remedy``: what to do where the two do not match."""

    @property
    def server_name(self) -> str:
        """The name that the peer's certificate must be issued for; "": the host of its address."""
        ...

    @property
    def remedy(self) -> str: ...

    def channel_credentials(self) -> grpc.ChannelCredentials: ...

    def dialing(self) -> ssl.SSLContext:
        """The same as a context of Python's own TLS. Raises `InvalidParameter`."""
        ...

    def own_fault(self) -> str:
        """Why a peer may close the connection when the handshake has completed on this process's side."""
        ...


@dataclass(frozen=True)
class RpcSecurity:
    """PEM files: this process's certificate (with intermediate ones, if any) and its key, and the CA.

    They are read once, by `check` or when first needed: while they are being renewed, a new peer is called
    with the old ones, like all others.

    ``server_name``: what the certificates of peers must be issued for; "": the host of the peer's address.
    """

    certificate: Path
    key: Path
    ca: Path
    server_name: str = ""
    remedy: ClassVar[str] = (
        "give every process a certificate of one CA (cluster.tls_cert, cluster.tls_key, cluster.tls_ca)"
    )

    def check(self) -> None:
        """Raises `InvalidParameter` naming the file that is unusable, and why."""
        _readable(certificate=self.certificate, key=self.key, CA=self.ca)
        try:
            self._handshake()
            _ = self._pems
        except ssl.SSLCertVerificationError as error:
            raise InvalidParameter(
                f"the certificate in {self.certificate} is not valid under the CA in {self.ca}: "
                f"{error.verify_message}"
            ) from error
        except ssl.SSLError as error:
            raise InvalidParameter(
                f"the certificate in {self.certificate} cannot be used for TLS: {error.reason}"
            ) from error

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials that refuse clients without a certificate of the CA."""
        key, certificate, ca = self._pems
        return grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        key, certificate, ca = self._pems
        return grpc.ssl_channel_credentials(ca, key, certificate)

    @cached_property
    def _pems(self) -> tuple[bytes, bytes, bytes]:
        """Key, certificate and CA."""
        return self.key.read_bytes(), self.certificate.read_bytes(), self.ca.read_bytes()

    def dialing(self) -> ssl.SSLContext:
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = True
        return context

    def own_fault(self) -> str:
        """gRPC's server closes the connection silently when it rejects a certificate; its log says why."""
        try:
            self.check()
        except InvalidParameter as error:
            return f"it does not accept this process: {error.message}"
        return "it does not accept the certificate of this process, its log says why"

    def _context(self, protocol: int) -> ssl.SSLContext:
        """Raises `InvalidParameter` when key and certificate do not match."""
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols([ALPN])
        _load_pair(context, self.certificate, self.key)
        _load_ca(context, self.ca)
        return context

    def _handshake(self) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        calling = self._context(ssl.PROTOCOL_TLS_CLIENT)
        calling.check_hostname = bool(self.server_name)
        serving = self._context(ssl.PROTOCOL_TLS_SERVER)
        ends = [
            calling.wrap_bio(to_client, to_server, server_hostname=self.server_name or None),
            serving.wrap_bio(to_server, to_client, server_side=True),
        ]
        for _ in range(_HANDSHAKE_FLIGHTS_MAX):
            for end in tuple(ends):
                try:
                    end.do_handshake()
                    ends.remove(end)
                except ssl.SSLWantReadError:
                    continue
            if not ends:
                return
        raise ssl.SSLError("the TLS handshake did not finish")


@dataclass(frozen=True, slots=True)
class FrontSecurity:
    """PEM files of a server that presents a certificate to clients.

    ``client_ca``: the CA that clients must present a certificate of; None requests none. The files are looked
    at when a client connects. Changed ones are used from then on, if they pass `check`; connections that
    exist keep what they were made with.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Raises `InvalidParameter` naming the file that is unusable, and why.

        Which CA clients trust, and when the certificate expires, is for the clients to check.
        """
        self.serving()

    def serving(self) -> ssl.SSLContext:
        """Return a context of Python's own TLS with what the files hold now. Raises as `check`."""
        _readable(certificate=self.certificate, key=self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load_pair(context, self.certificate, self.key)
        if self.client_ca is not None:
            _readable(CA=self.client_ca)
            _load_ca(context, self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files. gRPC looks at these in threads of its own."""
        renewal = Renewal(self, "gRPC")
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            lambda: renewal.changed(self._configuration),
            require_client_authentication=self.client_ca is not None,
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        self.check()
        ca = self.client_ca.read_bytes() if self.client_ca is not None else None
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], ca)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.certificate, self.key, *((self.client_ca,) if self.client_ca is not None else ()))


class Renewal:
    """Notices that the files of a front have changed since it was made.

    Its owner asks at each new connection: that looks at the files, and reads only changed ones, once.
    ``port``: what the log calls the owner.
    """

    def __init__(self, security: FrontSecurity, port: str) -> None:
        self._security = security
        self._port = port
        self._used = self._marks()
        self._refused: object = None

    def changed(self, load: Callable[[], T]) -> T | None:
        """Return what ``load`` makes of changed files; None if they have not changed, or cannot be used.

        While files are being replaced one after the other, they do not match: the former ones stay in use.
        ``load`` raises `InvalidParameter` or `OSError` then.
        """
        marks = self._marks()
        if marks in (self._used, self._refused):
            return None
        try:
            loaded = load()
        except (InvalidParameter, OSError) as error:
            self._refused = marks
            _log.warning(
                "new certificate not used; the former one stays in use", port=self._port, error=str(error)
            )
            return None
        self._used = marks
        _log.info("certificate renewed", port=self._port, certificate=str(self._security.certificate))
        return loaded

    def _marks(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_mark, self._security.files))


def _mark(file: Path) -> tuple[int, int, int] | None:
    """Return values that change when a file is written again or replaced, or who may read it changes."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_ino, found.st_size


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """A client that checks a server's certificate and presents none: the counterpart of `FrontSecurity`.

    ``ca``: a PEM file with the CA that signed it; None: the authorities that gRPC comes with.
    """

    ca: Path | None = None
    server_name: str = ""
    remedy: ClassVar[str] = (
        "clients use TLS where the proxy has proxy.tls_cert, and name the CA that signed it (tls_ca) and, "
        "where their address is another, what it is issued for (tls_server_name)"
    )

    def check(self) -> None:
        """Raises `InvalidParameter` naming the file that is unusable, and why."""
        if self.ca is not None:
            _readable(CA=self.ca)
            self.dialing()

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(None if self.ca is None else self.ca.read_bytes())

    def dialing(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols([ALPN])
        if self.ca is None:
            context.load_default_certs()
        else:
            _load_ca(context, self.ca)
        return context

    def own_fault(self) -> str:
        return "it asks for a certificate that this program has not: is that the port of a proxy?"


def _readable(**files: Path) -> None:
    for what, path in files.items():
        try:
            path.read_bytes()
        except OSError as error:
            raise InvalidParameter(f"the {what} file {path} cannot be read: {error.strerror}") from error


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise InvalidParameter(f"the CA file {ca} holds no certificate in PEM") from error


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        # a password of our own: OpenSSL would ask for one on the terminal
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"the key in {key} does not belong to the certificate in {certificate}"
        else:
            text = f"{certificate} and {key} are not a certificate and its unencrypted key in PEM"
        raise InvalidParameter(text) from error

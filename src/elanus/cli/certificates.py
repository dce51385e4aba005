"""`elanus tls init`: a CA of its own, and certificates of a server and of a client, for development.

The key of the CA is not kept, so nobody can issue more certificates of it. To have them renewed or revoked,
use a real CA.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_VALID_DAYS = 365
_OWNER_ONLY = 0o600
_ALL_MAY_READ = 0o644


class CannotWrite(Exception):
    """No certificates were made. The text is for the user."""


def write_certificates(directory: Path, names: Sequence[str]) -> list[Path]:
    """Write ca.pem, server.pem, server.key, client.pem and client.key, and return them.

    ``names``: host names and addresses of the server. Raises `CannotWrite` when a file exists already, or the
    library that makes certificates is missing.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise CannotWrite("the package cryptography is missing: pip install cryptography") from None
    files = [directory / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")]
    if there := [str(file) for file in files if file.exists()]:
        raise CannotWrite(f"{there[0]} exists: choose another directory, or remove it")
    ca_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Elanus development CA")])
    ca = _certificate(authority, ca_key, authority, ca_key, is_ca=True)
    contents = [_pem(ca)]
    for subject, alternatives in (("server", _alternatives(names)), ("client", [])):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)])
        contents += [_pem(_certificate(name, key, authority, ca_key, alternatives)), _key_pem(key)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, content in zip(files, contents, strict=True):
            _write(file, content)
    except OSError as error:
        raise CannotWrite(f"{directory} cannot be written: {error.strerror}") from None
    return files


def _write(file: Path, content: bytes) -> None:
    mode = _OWNER_ONLY if file.suffix == ".key" else _ALL_MAY_READ
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        out.write(content)


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _certificate(
    subject: x509.Name,
    key: EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: EllipticCurvePrivateKey,
    alternatives: Sequence[x509.GeneralName] = (),
    *,
    is_ca: bool = False,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

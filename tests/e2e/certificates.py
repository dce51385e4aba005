"""Certificates for servers under test, made for each."""

from __future__ import annotations

from pathlib import Path

import trustme


def make(directory: Path, name: str) -> dict[str, str]:
    """The files of a certificate for ``name`` (a host or an address): its ``cert``, its ``key``, and the
    ``ca`` that signed it."""
    directory.mkdir(parents=True, exist_ok=True)
    ca = trustme.CA()
    issued = ca.issue_cert(name)
    files = {what: directory / f"{what}.pem" for what in ("cert", "key", "ca")}
    issued.cert_chain_pems[0].write_to_path(files["cert"])
    issued.private_key_pem.write_to_path(files["key"])
    ca.cert_pem.write_to_path(files["ca"])
    return {what: str(path) for what, path in files.items()}

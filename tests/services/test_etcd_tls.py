"""Metadata in an etcd that knows its clients by their certificates."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme

from elanus.core.errors import Unavailable
from elanus.devcluster.etcd import Certificates, Etcd
from elanus.meta.port import Put
from elanus.server.backends import open_meta
from elanus.server.settings import Settings
from elanus.server.settings_services import MetaSettings

pytestmark = pytest.mark.services


def written(directory: Path, ca: trustme.CA) -> Certificates:
    directory.mkdir()
    files = Certificates(directory / "c.pem", directory / "k.pem", directory / "ca.pem")
    issued = ca.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(files.cert)
    issued.private_key_pem.write_to_path(files.key)
    ca.cert_pem.write_to_path(files.ca)
    return files


def settings(etcd: Etcd, files: Certificates, *, with_certificate: bool = True) -> Settings:
    own = f"&cert={files.cert}&key={files.key}" if with_certificate else ""
    return Settings(meta=MetaSettings(url=f"etcds://{etcd.endpoint}/t?ca={files.ca}{own}"))


async def put_and_get(settings: Settings) -> bytes:
    store = open_meta(settings, "test")
    try:
        await store.txn([Put("k", b"v")])
        found = await store.get("k")
        assert found is not None
        return found.value
    finally:
        await store.close()


def test_a_certificate_of_its_ca_is_the_way_in(tmp_path: Path) -> None:
    ca = trustme.CA()
    files = written(tmp_path / "known", ca)
    foreign = written(tmp_path / "foreign", trustme.CA())
    etcd = Etcd(tmp_path / "etcd", certificates=files)
    (tmp_path / "etcd").mkdir()
    etcd.start()
    try:
        assert asyncio.run(put_and_get(settings(etcd, files))) == b"v"
        for refused in (settings(etcd, files, with_certificate=False), settings(etcd, foreign)):
            with pytest.raises(Unavailable):
                asyncio.run(put_and_get(refused))
    finally:
        etcd.stop()

"""The backends ``etcd`` and ``etcds``: the metadata of a cluster (their URLs: `elanus.meta.etcd_source`)."""

from __future__ import annotations

from elanus.meta.etcd_source import FORM, EtcdSource
from elanus.meta.port import MetaBackend, MetaStore


def _open(url: str, owner: str) -> MetaStore:
    from elanus.meta.etcd import EtcdMeta

    source = EtcdSource.parse(url)
    return EtcdMeta(source.endpoints, root=source.prefix, owner=owner, credentials=source.credentials())


BACKEND = MetaBackend(form=FORM, check=EtcdSource.parse, open=_open)

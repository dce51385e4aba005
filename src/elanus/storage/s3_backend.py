"""The backend ``s3``: objects in a bucket (`elanus.storage.s3`)."""

from __future__ import annotations

from elanus.core.backends import identity_of_place
from elanus.storage.port import ObjectStore, StorageBackend
from elanus.storage.s3_source import FORM, S3Source


def _open(url: str) -> ObjectStore:
    from elanus.storage.s3 import S3Store

    return S3Store(url)


def _clean(url: str, unused_for_s: float) -> None:
    """Parts of interrupted uploads are not listed; a rule of the bucket removes them (docs/services.md)."""


BACKEND = StorageBackend(
    form=FORM, check=S3Source.parse, identity=identity_of_place, open=_open, clean=_clean
)

"""The memory, disk, open files, certificates and object store of this process. For `/status` only."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from elanus.server.free_disk import FreeDisk, directories_of
from elanus.server.memory_limit import memory_limit_bytes
from elanus.server.open_files import open_files_limit
from elanus.server.settings import Settings
from elanus.server.settings_access import DEFAULT_ROOT_PASSWORD
from elanus.server.status import CertificateStatus, Resources
from elanus.storage.port import ObjectStore, ReportingStore

_MB = 1 << 20
_DAY = timedelta(days=1)
_log = structlog.get_logger("server")


class OwnResources:
    """Reads the figures when it is asked for them, from a thread that may wait for files."""

    def __init__(
        self,
        settings: Settings,
        growing_bytes: Callable[[], int],
        wall_ms: Callable[[], int],
        store: ObjectStore | None = None,
    ) -> None:
        self._settings = settings
        self._growing_bytes = growing_bytes
        self._wall_ms = wall_ms
        self._store = store
        urls = (settings.log.url, settings.storage.url)
        self._disk = FreeDisk((settings.data_dir, *directories_of(urls)))

    @property
    def may_have_default_password(self) -> bool:
        """Whether root signs in with the default password until it is changed."""
        proxy = self._settings.proxy
        return proxy.authorization_enabled and proxy.initial_root_password == DEFAULT_ROOT_PASSWORD

    def read(self, root_unchanged: bool) -> Resources:
        """Return the figures as of now. ``root_unchanged``: root's password was never changed."""
        settings, store, limit = self._settings, self._store, open_files_limit()
        proxy, pressure = settings.proxy, settings.backpressure
        return Resources(
            growing_bytes=self._growing_bytes(),
            growing_soft_bytes=pressure.growing_soft_mb * _MB,
            growing_hard_bytes=pressure.growing_hard_mb * _MB,
            memory_bytes=resident_bytes(),
            memory_limit_bytes=memory_limit_bytes(),
            disk_free_bytes=self._disk.free_bytes(),
            disk_reserve_bytes=pressure.disk_reserve_mb * _MB,
            open_files=_open_files(),
            open_files_limit=0 if limit == resource.RLIM_INFINITY else limit,
            certificates=list(self._certificates()),
            default_root_password=self.may_have_default_password and root_unchanged,
            open_to_all=not proxy.is_on_loopback and not proxy.authorization_enabled,
            log_synced=settings.log.fsync,
            store_failures=store.failures() if isinstance(store, ReportingStore) else None,
        )

    def _certificates(self) -> Iterator[CertificateStatus]:
        settings = self._settings
        named = {
            "proxy.tls_cert": settings.proxy.tls_cert,
            "proxy.tls_client_ca": settings.proxy.tls_client_ca,
            "cluster.tls_cert": settings.cluster.tls_cert,
            "cluster.tls_ca": settings.cluster.tls_ca,
        }
        now = datetime.fromtimestamp(self._wall_ms() / 1000, UTC)
        for setting, path in named.items():
            if path and (expires := expiry_of(Path(path))) is not None:
                days = (expires - now) / _DAY
                yield CertificateStatus(setting, path, expires.isoformat(timespec="seconds"), days)


def expiry_of(path: Path) -> datetime | None:
    """Return when the first of a file's certificates expires.

    None if the package cryptography is missing, or the file cannot be read: that is logged.
    """
    try:
        from cryptography import x509
    except ImportError:
        return None
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        _log.warning("certificate not checked", path=str(path), error=str(error))
        return None
    return min(certificate.not_valid_after_utc for certificate in found)


def resident_bytes() -> int:
    """Return the memory of this process; 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # not Linux
        return 0

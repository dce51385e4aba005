"""The memory, disk, open files and certificates that a process reports."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_report

from elanus.cli.certificates import write_certificates
from elanus.core.access import AccessPolicy, User
from elanus.core.privileges import ROOT
from elanus.server.own_resources import OwnResources, expiry_of
from elanus.server.report import Report
from elanus.server.settings import Settings
from elanus.server.status import Resources
from elanus.storage.local import LocalStore
from elanus.storage.port import StoreFailures

NOW = datetime.now(UTC)
FAILURES = StoreFailures(3, 15.0, 2.0, "503 Slow Down")


class Failing(LocalStore):
    def failures(self) -> StoreFailures | None:
        return FAILURES


def read(tmp_path: Path, unchanged: bool = False, **settings: Any) -> Resources:
    made = Settings.model_validate({"data_dir": tmp_path} | settings)
    return OwnResources(made, lambda: 7, lambda: int(NOW.timestamp() * 1000)).read(unchanged)


def test_the_figures_of_this_process(tmp_path: Path) -> None:
    found = read(tmp_path / "not made yet", backpressure={"growing_soft_mb": 3})
    assert (found.growing_bytes, found.growing_soft_bytes) == (7, 3 << 20)
    assert 1 << 20 < found.memory_bytes < found.memory_limit_bytes
    assert found.disk_free_bytes
    assert found.disk_free_bytes > 0
    assert found.open_files > 2
    assert (found.certificates, found.open_to_all, found.log_synced) == ([], False, True)


def test_the_failures_of_the_object_store(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path})
    for store, failures in ((LocalStore(tmp_path), None), (Failing(tmp_path), FAILURES)):
        assert OwnResources(settings, lambda: 0, lambda: 0, store).read(False).store_failures == failures


def test_the_days_that_a_certificate_has_left(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["localhost"])
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"
    (one,) = read(tmp_path, proxy={"tls_cert": str(cert), "tls_key": str(key)}).certificates
    expires = expiry_of(cert)
    assert expires is not None
    assert (one.setting, one.path, datetime.fromisoformat(one.expires)) == (
        "proxy.tls_cert",
        str(cert),
        expires,
    )
    assert one.days_left == pytest.approx((expires - NOW) / timedelta(days=1), abs=0.01)
    cert.write_text("damaged")
    assert expiry_of(cert) is None


@pytest.mark.parametrize(
    ("proxy", "unchanged", "is_default"),
    [
        ({"authorization_enabled": True}, True, True),
        ({"authorization_enabled": True}, False, False),
        ({"authorization_enabled": True, "root_password": "another"}, True, False),
        ({}, True, False),  # nobody signs in
    ],
)
def test_the_default_password(
    tmp_path: Path, proxy: dict[str, Any], unchanged: bool, is_default: bool
) -> None:
    assert read(tmp_path, unchanged, proxy=proxy).default_root_password is is_default


def test_a_server_that_everybody_reaches(tmp_path: Path) -> None:
    assert read(tmp_path, proxy={"host": "0.0.0.0", "open_to_all": True}).open_to_all


@pytest.mark.parametrize(("password_hash", "is_default"), [("", True), ("scrypt", False)])
def test_the_status_asks_whether_root_was_changed(
    tmp_path: Path, password_hash: str, is_default: bool
) -> None:
    subject = test_report.subject()
    policy = AccessPolicy({ROOT: User(ROOT, password_hash, 0)})
    subject.root = SimpleNamespace(**vars(subject.root), access_policy=test_report.answers(policy))
    settings = Settings.model_validate({"data_dir": tmp_path, "proxy": {"authorization_enabled": True}})

    async def ask() -> Resources | None:
        report = Report(subject, None, None)
        report.resources = OwnResources(settings, lambda: 0, lambda: 0)
        return (await asyncio.to_thread(report.status)).resources

    found = asyncio.run(ask())
    assert found is not None
    assert found.default_root_password is is_default

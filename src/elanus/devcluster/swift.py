"""An S3 server on loopback: OpenStack Swift with its S3 interface, one replica in one directory.

It is a real object store, so its refusals and failures are real: signatures are checked, a put that requires
a new name is refused when the name is taken, the parts of an upload become one object.
"""

from __future__ import annotations

import getpass
import importlib.util
import secrets
import sys
from pathlib import Path
from urllib.parse import urlencode

from elanus.devcluster.process import ServiceFailed, ServiceProcess, free_port, http_ok
from elanus.devcluster.programs import how_to_install

ACCESS_KEY = "elanus:dev"
REGION = "us-east-1"
BUCKET = "elanus"
_KINDS = ("account", "container", "object", "proxy")
_COMMON = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {directory}
devices = {directory}/devices
mount_check = false
log_level = ERROR
"""
_STORAGE_PIPELINE = """
[pipeline:main]
pipeline = {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}
fallocate_reserve = 0
"""
_PROXY_PIPELINE = """
[pipeline:main]
pipeline = {filters} proxy-server

[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true

[filter:tempauth]
use = egg:swift#tempauth
user_elanus_dev = {secret} .admin

[filter:s3api]
use = egg:swift#s3api
location = {region}
"""
_FILTERS = "catch_errors gatekeeper healthcheck listing_formats bulk s3api tempauth copy slo symlink"
_CONFIGURED = frozenset({"s3api", "tempauth"})


class Swift(ServiceProcess):
    """``url`` is the S3 endpoint; it has one bucket, `BUCKET`, and one pair of keys, in ``credentials``.

    Objects are stored below ``directory``, and survive a restart.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "swift"
        self._ports = {kind: free_port() for kind in _KINDS}
        self.credentials = directory / "s3-credentials"
        self._secret_key = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{self._ports['proxy']}"
        if importlib.util.find_spec("swift") is None:
            raise ServiceFailed(f"OpenStack Swift is not installed: {how_to_install()}")
        self._configure()
        script = Path(__file__).with_name("swift_server.py")
        super().__init__(
            name="s3",
            command=[sys.executable, "-I", "-W", "ignore", str(script), str(self._directory), BUCKET],
            output=directory / "swift.log",
            ready=lambda: http_ok(f"{self.url}/healthcheck", "OK"),
            endpoints={"s3": self.store_url("data")},
        )

    def store_url(self, prefix: str) -> str:
        """Return the URL for `elanus.storage.objects.open_store`."""
        query = urlencode({"endpoint": self.url, "region": REGION, "credentials": str(self.credentials)})
        return f"s3://{BUCKET}/{prefix}?{query}"

    def _configure(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.credentials.write_text(
            f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {self._secret_key}\n"
        )
        self.credentials.chmod(0o600)
        salted = self._directory / "swift.conf"
        if not salted.exists():  # existing objects are found by it
            salted.write_text(f"[swift-hash]\nswift_hash_path_suffix = {secrets.token_hex(8)}\n")
        plain = [name for name in _FILTERS.split() if name not in _CONFIGURED]
        proxy = _PROXY_PIPELINE.format(filters=_FILTERS, secret=self._secret_key, region=REGION)
        proxy += "".join(f"\n[filter:{name}]\nuse = egg:swift#{name}\n" for name in plain)
        for kind, port in self._ports.items():
            common = _COMMON.format(port=port, user=getpass.getuser(), directory=self._directory)
            own = proxy if kind == "proxy" else _STORAGE_PIPELINE.format(kind=kind)
            (self._directory / f"{kind}-server.conf").write_text(common + own)

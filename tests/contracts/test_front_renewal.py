"""A port for clients: certificates that are renewed while it serves, and clients that must present one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from elanus.cli.certificates import CannotWrite, write_certificates
from elanus.core.errors import InvalidParameter
from elanus.rpc.security import FrontSecurity


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


@contextmanager
def serving(security: FrontSecurity) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_secure_port("127.0.0.1:0", security.server_credentials())
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def answers(address: str, ca: Path, own: Path | None = None) -> bool:
    """Whether a client with a new connection gets an answer. ``own``: the directory of its certificate."""
    key, certificate = (None, None) if own is None else ((own / "client.key"), (own / "client.pem"))
    credentials = grpc.ssl_channel_credentials(
        ca.read_bytes(), key and key.read_bytes(), certificate and certificate.read_bytes()
    )
    # a pool of its own: gRPC would share a connection of another client
    with grpc.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            return bool(channel.unary_unary("/a/b")(b"x", timeout=20) == b"x")
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017 - not the time that ran out
            return False


def install(source: Path, target: Path, *names: str) -> None:
    """Put files in place as a renewal does: each at once."""
    for name in names:
        shutil.copy(source / name, target / f"{name}.new")
        (target / f"{name}.new").rename(target / name)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    for name in ("one", "two", "used"):
        write_certificates(tmp_path / name, ["localhost", "127.0.0.1"])
    install(tmp_path / "one", tmp_path / "used", "ca.pem", "server.pem", "server.key")
    return tmp_path


def test_new_files_are_used_by_the_next_connection(made: Path) -> None:
    one, two, used = (made / name for name in ("one", "two", "used"))
    with serving(FrontSecurity(used / "server.pem", used / "server.key")) as address:
        assert answers(address, one / "ca.pem")
        install(two, used, "server.pem")
        assert answers(address, one / "ca.pem"), "half of the files are new: the former ones are used"
        install(two, used, "server.key")
        assert answers(address, two / "ca.pem")
        assert not answers(address, one / "ca.pem")
        (used / "server.pem").unlink()
        assert answers(address, two / "ca.pem"), "files that are gone change nothing"


def test_clients_must_present_a_certificate_of_the_ca(made: Path) -> None:
    one, two, used = (made / name for name in ("one", "two", "used"))
    security = FrontSecurity(used / "server.pem", used / "server.key", used / "ca.pem")
    with serving(security) as address:
        assert answers(address, one / "ca.pem", own=one)
        assert not answers(address, one / "ca.pem")
        assert not answers(address, one / "ca.pem", own=two)


def test_an_unusable_ca_of_clients_is_named(made: Path) -> None:
    used = made / "used"
    security = FrontSecurity(used / "server.pem", used / "server.key", used / "server.key")
    with pytest.raises(InvalidParameter, match=r"server.key holds no certificate"):
        security.check()


def test_development_certificates_overwrite_nothing(made: Path) -> None:
    before = (made / "one" / "server.key").read_bytes()
    with pytest.raises(CannotWrite, match="exists: choose another directory"):
        write_certificates(made / "one", ["localhost"])
    assert (made / "one" / "server.key").read_bytes() == before
    assert (made / "one" / "server.key").stat().st_mode & 0o777 == 0o600

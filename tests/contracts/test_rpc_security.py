"""Mutual TLS between roles: who is refused, and that both sides say so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import structlog
import trustme
from rpc_carriers import LONG_AGO, over_tcp, security_of

from elanus.core.errors import InvalidParameter, Unavailable
from elanus.rpc.carrier import RpcServer
from elanus.rpc.security import RpcSecurity
from elanus.rpc.tls_diagnosis import is_local, refusal


class EchoApi(Protocol):
    async def echo(self, text: str) -> str: ...


class Echo:
    async def echo(self, text: str) -> str:
        return text


class World:
    """A CA, another one, and members of both."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca, self.foreign_ca = trustme.CA(), trustme.CA()
        self.member = self.of("member", self.ca.issue_cert("127.0.0.1"))

    def of(
        self, name: str, cert: trustme.LeafCert, trusts: trustme.CA | None = None, server_name: str = ""
    ) -> RpcSecurity:
        return security_of(self._directory / name, cert, trusts or self.ca, server_name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def call(served: RpcSecurity | None, called: RpcSecurity | None) -> str:
    async def run() -> str:
        # no time limit: a peer that will never be understood must not be waited for
        async with over_tcp(EchoApi, Echo(), served, called, timeout_s=None) as client:
            return str(await client.echo("hello"))

    return asyncio.run(run())


def refused(served: RpcSecurity | None, called: RpcSecurity | None) -> str:
    with pytest.raises(Unavailable) as caught:
        call(served, called)
    assert caught.value.message.startswith("echo cannot be reached: 127.0.0.1:")
    assert "cluster.tls_cert" in caught.value.message
    return caught.value.message


def test_members_of_one_ca_talk(world: World) -> None:
    other = world.of("other", world.ca.issue_cert("elsewhere.example"))
    assert call(world.member, other) == "hello"


def test_a_member_may_be_called_by_a_name_that_all_share(world: World) -> None:
    shared = world.of("shared", world.ca.issue_cert("elanus.internal"), server_name="elanus.internal")
    assert call(shared, shared) == "hello"


def test_a_certificate_may_have_intermediate_ones_behind_it(world: World) -> None:
    issued = world.ca.create_child_ca().issue_cert("127.0.0.1")
    chained = world.of("chained", issued)
    chained.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    chained.check()
    assert call(chained, world.member) == "hello"
    assert call(world.member, chained) == "hello"


def test_while_the_ca_changes_members_of_the_old_and_the_new_one_talk(world: World) -> None:
    old = world.of("old", world.ca.issue_cert("127.0.0.1"))
    new = world.of("new", world.foreign_ca.issue_cert("127.0.0.1"), world.foreign_ca)
    for member, other in ((old, world.foreign_ca), (new, world.ca)):
        member.ca.write_bytes(member.ca.read_bytes() + other.cert_pem.bytes())
        member.check()
    assert call(old, new) == "hello"
    assert call(new, old) == "hello"


def test_a_certificate_of_another_ca_is_refused_by_the_server(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    stranger = world.of("stranger", world.foreign_ca.issue_cert("127.0.0.1"))
    text = refused(world.member, stranger)
    assert "it does not accept this process" in text
    assert "unable to get local issuer certificate" in text
    # The server's own line is gRPC's.
    assert "CERTIFICATE_VERIFY_FAILED" in capfd.readouterr().err


def test_an_expired_certificate_is_refused_by_the_server(world: World) -> None:
    late = world.of("late", world.ca.issue_cert("127.0.0.1", **LONG_AGO))
    assert "certificate has expired" in refused(world.member, late)


def test_an_expired_certificate_of_the_server_is_refused_by_the_client(world: World) -> None:
    late = world.of("late", world.ca.issue_cert("127.0.0.1", **LONG_AGO))
    assert "its certificate is refused: certificate has expired" in refused(late, world.member)


def test_a_server_of_another_ca_is_refused_by_the_client(world: World) -> None:
    stranger = world.of("stranger", world.foreign_ca.issue_cert("127.0.0.1"), world.foreign_ca)
    assert "its certificate is refused" in refused(stranger, world.member)


def test_a_server_of_another_name_is_refused_by_the_client(world: World) -> None:
    elsewhere = world.of("elsewhere", world.ca.issue_cert("elsewhere.example"))
    assert "not valid for '127.0.0.1'" in refused(elsewhere, world.member)


def test_a_client_without_a_certificate_is_refused(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    assert "it speaks TLS, and this process does not" in refused(world.member, None)
    assert "Handshake failed" in capfd.readouterr().err


def test_a_server_without_a_certificate_is_refused(world: World) -> None:
    assert "it does not speak TLS, and this process does" in refused(None, world.member)


@pytest.mark.parametrize("address", ["nowhere", "dns:///nowhere.invalid:1", "127.0.0.1:1"])
def test_of_a_peer_that_is_not_there_nothing_can_be_said(world: World, address: str) -> None:
    assert asyncio.run(refusal(address, world.member)) == ""
    assert asyncio.run(refusal(address, None)) == ""


def test_files_that_are_gone_meanwhile_say_nothing_of_the_peer(world: World) -> None:
    gone = replace(world.member, key=world.member.key.with_name("gone"))
    assert asyncio.run(refusal("127.0.0.1:1", gone)) == ""


def test_a_peer_that_joins_while_the_files_are_renewed_is_called_with_those_read_before(
    world: World,
) -> None:
    member = world.of("renewed", world.ca.issue_cert("127.0.0.1"))
    member.check()
    for file in (member.key, member.certificate, member.ca):
        file.unlink()
    assert call(world.member, member) == "hello"
    assert call(member, world.member) == "hello"


# at the start


def test_a_good_certificate_passes_the_check(world: World) -> None:
    world.member.check()


@pytest.mark.parametrize("missing", ["certificate", "key", "ca"])
def test_a_file_that_cannot_be_read_is_named(world: World, missing: str, tmp_path: Path) -> None:
    security = replace(world.member, **{missing: tmp_path / "nowhere.pem"})
    with pytest.raises(InvalidParameter, match=r"nowhere\.pem cannot be read: No such file"):
        security.check()


def test_a_key_of_another_certificate_is_named(world: World) -> None:
    other = world.of("other", world.ca.issue_cert("127.0.0.1"))
    with pytest.raises(InvalidParameter, match="does not belong to the certificate in"):
        replace(world.member, key=other.key).check()


def test_files_that_are_no_pem_are_named(world: World, tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_text("junk")
    with pytest.raises(InvalidParameter, match="are not a certificate and its unencrypted key"):
        replace(world.member, key=junk).check()
    with pytest.raises(InvalidParameter, match="holds no certificate"):
        replace(world.member, ca=junk).check()


@pytest.mark.parametrize(
    ("issued", "name", "reason"),
    [
        ("foreign", "", "unable to get local issuer certificate"),
        ("expired", "", "certificate has expired"),
        ("good", "other.example", "not valid for 'other.example'"),
    ],
)
def test_what_every_peer_would_refuse_is_an_error_at_the_start(
    world: World, issued: str, name: str, reason: str
) -> None:
    cert = {
        "foreign": lambda: world.foreign_ca.issue_cert("127.0.0.1"),
        "expired": lambda: world.ca.issue_cert("127.0.0.1", **LONG_AGO),
        "good": lambda: world.ca.issue_cert("127.0.0.1"),
    }[issued]()
    with pytest.raises(InvalidParameter, match=reason):
        world.of("tried", cert, server_name=name).check()


# without


def start(address: str, security: RpcSecurity | None) -> None:
    async def run() -> None:
        server = RpcServer(address, [(EchoApi, Echo())], security=security)
        await server.start()
        await server.stop(0)

    asyncio.run(run())


def test_serving_other_machines_without_tls_is_warned_of(logged: list[Any], world: World) -> None:
    start("127.0.0.1:0", None)
    start("0.0.0.0:0", world.member)
    assert logged == []
    start("0.0.0.0:0", None)
    assert [line["log_level"] for line in logged] == ["warning"]
    assert logged[0]["address"] == "0.0.0.0:0"
    assert "cluster.tls_cert" in logged[0]["event"]


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("unix:/run/s", True),
        ("127.0.0.1:1", True),
        ("127.1.2.3:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("node.example:1", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(address: str, local: bool) -> None:
    assert is_local(address) is local

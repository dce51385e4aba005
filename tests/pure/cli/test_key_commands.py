"""`elanus keys`, against a client port with users that only plays along."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from typer.testing import CliRunner

from elanus.api.keys import KeysApi
from elanus.cli.app import app
from elanus.cli.options import EXIT_FAILED
from elanus.core import access
from elanus.core.access import User, first_policy
from elanus.core.api_keys import ApiKey, KeyScope, digest_of, expiry_ms, key_text
from elanus.proxy.access.guard import AccessGuard
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.calls import Calls
from elanus.proxy.wire.interfaces import interface_handler, interface_operations
from elanus.proxy.wire.keys import Keys


class FakeKeys:
    """Verbs that know ada, who has no password that matters, and her keys."""

    def __init__(self) -> None:
        self.policy = access.with_user(first_policy(), User("ada", "secret", 1), 10)

    def access_policy(self) -> access.AccessPolicy:
        return self.policy

    def create_api_key(
        self, user: str, valid_days: int, description: str, scope: KeyScope
    ) -> tuple[ApiKey, str]:
        text = key_text("5f0c", "much")
        key = ApiKey("5f0c", user, digest_of(text), 1, expiry_ms(1, valid_days), description, scope)
        self.policy = access.with_key(self.policy, key)
        return key, text

    def drop_api_key(self, user: str, key_id: str) -> None:
        self.policy = access.without_key(self.policy, user, key_id)


@pytest.fixture
def uri() -> Iterator[str]:
    verbs = FakeKeys()
    target = Keys(verbs)  # type: ignore[arg-type]
    sign_in = SignIn(verbs.access_policy, "", lambda password, stored: password == stored, now_s=lambda: 1.0)
    guard = AccessGuard(verbs.access_policy, lambda _, name: name)
    calls = Calls(interface_operations(KeysApi, target), guard, lambda *_: None, sign_in)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((interface_handler(KeysApi, calls),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop(0).wait()


def test_keys_are_created_listed_and_dropped(uri: str) -> None:
    run = CliRunner().invoke
    named = ["--uri", uri, "--token", "ada:secret"]
    made = run(app, ["keys", "create", "ada", "--days", "2", "--description", "night job", *named])
    assert (made.exit_code, made.output) == (0, "elk_5f0c_much\n")
    limited = run(app, ["keys", "create", "ada", "--database", "shop", "--role", "nobody", *named])
    assert (limited.exit_code, "not found the role" in limited.output) == (EXIT_FAILED, True)
    by_key = ["--uri", uri, "--token", "elk_5f0c_much"]
    refused = run(app, ["keys", "list", *by_key])
    assert refused.exit_code == EXIT_FAILED
    assert "permission deny to ada" in refused.output
    assert run(app, ["keys", "list", "--user", "ada", *named]).output.splitlines()[1:] == [
        "key   user  created     expires     roles  databases  description",
        "5f0c  ada   1970-01-01  1970-01-03  all    all        night job",
    ]
    assert run(app, ["keys", "drop", "ada", "5f0c", *named]).output == "5f0c dropped\n"
    again = run(app, ["keys", "drop", "ada", "5f0c", *named])
    assert (again.exit_code, again.output) == (EXIT_FAILED, "the user ada has no API key 5f0c\n")


def test_without_a_token_the_error_says_how_to_sign_in(uri: str) -> None:
    refused = CliRunner(env={"ELANUS_TOKEN": None}).invoke(app, ["keys", "list", "--uri", uri])
    assert refused.exit_code == EXIT_FAILED
    assert "sign in with --token or the variable ELANUS_TOKEN" in refused.output
    wrong = CliRunner().invoke(app, ["keys", "list", "--uri", uri, "--token", "ada:wrong"])
    assert wrong.exit_code == EXIT_FAILED
    assert "sign in with" not in wrong.output

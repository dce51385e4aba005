"""The commands ``elanus keys``: their arguments, and the code that each one calls."""

from __future__ import annotations

from typing import Annotated

import typer

from elanus.cli.options import (
    EXIT_FAILED,
    ServerOptions,
    fail,
    on_server,
)

keys_app = typer.Typer(no_args_is_help=True)


@keys_app.command("create")
@on_server
def create_key(
    user: Annotated[str, typer.Argument(help="The user as whom programs sign in with the key.")],
    days: Annotated[int, typer.Option(min=0, help="How long it is valid; 0: until it is dropped.")] = 0,
    description: Annotated[str, typer.Option(help="What the key is for.")] = "",
    role: Annotated[
        list[str] | None,
        typer.Option(help="A role of the user: the key has its rights only. Repeatable.", show_default=False),
    ] = None,
    database: Annotated[
        list[str] | None,
        typer.Option(help="The key has rights in this database only. Repeatable.", show_default=False),
    ] = None,
    *,
    server: ServerOptions,
) -> None:
    """Create an API key and print it. It is printed only once: the server keeps a digest of it."""
    from elanus.cli import keys
    from elanus.core.api_keys import KeyScope

    scope = KeyScope(tuple(role or ()), tuple(database or ()))
    try:
        made = keys.create(server.find(), user, days, description, scope)
    except keys.KeysFailed as error:
        fail(str(error), EXIT_FAILED)
    typer.echo(made.key)


@keys_app.command("list")
@on_server
def list_keys(
    user: Annotated[str, typer.Option(help="Only the keys of this user.", show_default=False)] = "",
    *,
    server: ServerOptions,
) -> None:
    """List API keys: ids, users, expiry and limits; never the keys themselves."""
    from elanus.cli import keys

    try:
        found = keys.listed(server.find(), user)
    except keys.KeysFailed as error:
        fail(str(error), EXIT_FAILED)
    keys.show_keys(found)


@keys_app.command("drop")
@on_server
def drop_key(
    user: Annotated[str, typer.Argument(help="The key's user.")],
    key: Annotated[str, typer.Argument(help="The key's id, as `elanus keys list` shows it.")],
    *,
    server: ServerOptions,
) -> None:
    """Drop an API key. When the command returns, no proxy accepts it."""
    from elanus.cli import keys

    try:
        keys.drop(server.find(), user, key)
    except keys.KeysFailed as error:
        fail(str(error), EXIT_FAILED)
    typer.echo(f"{key} dropped")

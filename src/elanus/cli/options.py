"""Parts shared by the commands of ``elanus``: options, exit codes, and how the server is found.

As in `elanus.cli.app`, what a command needs is imported when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from elanus.cli.harmless import harmless

if TYPE_CHECKING:
    from elanus.cli.server_calls import Server
    from elanus.server.settings import Settings

EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_FOUND = 3


def directory_named(given: str) -> Path:
    """Parse the name of a directory. As a plain `Path`, an empty one, of a variable that is not set, would be
    the current directory."""
    if not given:
        raise typer.BadParameter("it is empty: name a directory, or . for the current one")
    return Path(given)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        parser=directory_named,
        metavar="PATH",
        help="The data directory (setting data_dir). Default: elanus-data.",
        show_default=False,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="The server's metrics address, such as http://127.0.0.1:9091. "
        "Default: the server on --data-dir.",
        show_default=False,
    ),
]
Config = Annotated[Path | None, typer.Option("--config", help="A YAML file of settings.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, by its dotted name. May be repeated."),
]
Uri = Annotated[str, typer.Option(help="The server, http(s)://host:port. Default: the server on --data-dir.")]
TlsCa = Annotated[str, typer.Option(help="For a server with proxy.tls_cert: the CA that signed it.")]
TlsServerName = Annotated[str, typer.Option(help="The name in that certificate. Default: the server's host.")]
Token = Annotated[
    str,
    typer.Option(
        envvar="ELANUS_TOKEN",
        help="user:password or an API key, for a server with proxy.authorization_enabled. Other users of the "
        "machine can see the option, but not the variable.",
    ),
]
_SERVER_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "uri": (Uri, ""),
    "tls_ca": (TlsCa, ""),
    "tls_server_name": (TlsServerName, ""),
    "token": (Token, ""),
    "data_dir": (DataDir, None),
}
Wide = Annotated[bool, typer.Option("--wide", help="Show all columns, even if a line exceeds 80 characters.")]


def effective_settings(
    config: Path | None, named: Mapping[str, object], assignments: Iterable[str] | None
) -> Settings:
    """Return the effective settings, or end the command with exit code 2."""
    from elanus.server.settings_load import InvalidSettings, load

    flags = {name: value for name, value in named.items() if value is not None}
    flags |= named_values("--set", assignments)
    try:
        return load(config, flags)
    except InvalidSettings as error:
        fail("\n".join(error.problems), EXIT_MISUSED)


def named_values(option: str, given: Iterable[str] | None) -> dict[str, str]:
    """Return the values that an option was given as ``NAME=VALUE``, or end the command with exit code 2."""
    values: dict[str, str] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals:
            fail(f"{option} {one}: write it as NAME=VALUE", EXIT_MISUSED)
        values[name.strip()] = value.strip()
    return values


def observe_url(data_dir: Path | None, url: str | None, *, changes: bool = False) -> str:
    """Return the metrics address: as given, as announced in the data directory, or from the settings.

    The last is a guess, so it is said, and a command that changes the server (``changes``) ends instead.
    """
    if url:
        return url.rstrip("/")
    from elanus.server.announce import find

    effective = effective_settings(None, {"data_dir": data_dir}, None)
    announcement = find(effective.data_dir)
    if announcement and announcement.observe_url:
        return announcement.observe_url
    if data_dir or changes:
        fail(_no_server(effective.data_dir, "--url"), EXIT_FAILED)
    guess = f"http://{effective.metrics.host}:{effective.metrics.port}"
    typer.echo(f"no server is running on {effective.data_dir}: this is about the one at {guess}", err=True)
    return guess


def address_in_data_dir(data_dir: Path | None) -> str:
    """Return the address of the server that runs on a data directory of this machine."""
    from elanus.server.announce import find

    effective = effective_settings(None, {"data_dir": data_dir}, None)
    announcement = find(effective.data_dir)
    if announcement is None:
        fail(_no_server(effective.data_dir, "--uri"), EXIT_FAILED)
    return announcement.address


def _no_server(data_dir: Path, option: str) -> str:
    return (
        f"no server is running on {data_dir}: start one with `elanus serve --data-dir {data_dir}`, "
        f"name another directory with --data-dir, or give the server's address with {option}"
    )


def rest_url(data_dir: Path | None) -> str:
    """Return the address of the REST API of the server that runs on a data directory of this machine."""
    from elanus.server.announce import find

    effective = effective_settings(None, {"data_dir": data_dir}, None)
    announcement = find(effective.data_dir)
    if announcement is None or not announcement.http_url:
        fail(
            f"no server with a REST API is running on {effective.data_dir}: give its address with --uri",
            EXIT_FAILED,
        )
    return announcement.http_url


def server_named(uri: str, tls_ca: str, tls_server_name: str, token: str, data_dir: Path | None) -> Server:
    """Return the server that the options name; wrong ones end the command with exit code 2."""
    from elanus.cli.server_calls import Server
    from elanus.core.errors import InvalidParameter
    from elanus.rpc.uri import address_in, security_for

    try:
        address = address_in(uri) if uri else address_in_data_dir(data_dir)
        return Server(address, security_for(uri, tls_ca, tls_server_name), token)
    except InvalidParameter as error:
        raise typer.BadParameter(error.message) from None


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options by which a command finds its server, on its client port. `on_server` declares them."""

    uri: str
    tls_ca: str
    tls_server_name: str
    token: str
    data_dir: Path | None

    def find(self) -> Server:
        """Return the server; options that name none end the command."""
        return server_named(self.uri, self.tls_ca, self.tls_server_name, self.token, self.data_dir)


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `ServerOptions`, as its parameter ``server``, after its own options."""
    own = inspect.signature(command, eval_str=True).parameters.values()

    def run(**given: Any) -> None:
        command(server=ServerOptions(**{name: given.pop(name) for name in _SERVER_OPTIONS}), **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    parameters = [parameter for parameter in own if parameter.name != "server"]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        for name, (hint, default) in _SERVER_OPTIONS.items()
    ]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def fail(message: str, code: int) -> NoReturn:
    """Print the message on standard error, and end the command."""
    typer.echo(harmless(message), err=True)
    raise typer.Exit(code)

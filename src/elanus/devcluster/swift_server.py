"""All servers of a small OpenStack Swift in one process: proxy, account, container, object.

Run by path as ``python swift_server.py DIRECTORY BUCKET``. The directory has ``swift.conf`` and one
``KIND-server.conf`` per server, which set the ports; each run writes the rings there, with these
ports and the single device ``disk``. Swift starts a process per server and a few more to make each
ring; one process that imports Swift once is ready in a fraction of that time.

Swift needs an interpreter of its own (it patches sockets for eventlet), so nothing imports this module.
"""

import sys
from configparser import ConfigParser
from pathlib import Path

import eventlet
from eventlet import wsgi as eventlet_wsgi
from swift.common import utils, wsgi
from swift.common.http_protocol import SwiftHttpProtocol
from swift.common.ring.builder import RingBuilder
from swift.common.swob import Request

_STORAGE = ("account", "container", "object")
_PART_POWER = 2


def main(directory: Path, bucket: str) -> None:
    utils.monkey_patch()
    (directory / "devices" / "disk").mkdir(parents=True, exist_ok=True)
    ports = {kind: _port(directory / f"{kind}-server.conf") for kind in (*_STORAGE, "proxy")}
    for kind in _STORAGE:
        _make_ring(directory / f"{kind}.ring.gz", ports[kind])
    utils.set_swift_dir(str(directory))
    apps = {kind: wsgi.loadapp(str(directory / f"{kind}-server.conf")) for kind in ports}
    sockets = {kind: eventlet.listen(("127.0.0.1", port)) for kind, port in ports.items()}
    storage = [eventlet.spawn(_serve, sockets[kind], apps[kind]) for kind in _STORAGE]
    # bypasses the interface that checks signatures; clients cannot do that
    made = Request.blank(f"/v1/AUTH_elanus/{bucket}", environ={"REQUEST_METHOD": "PUT"})
    answer = made.get_response(apps["proxy"]._pipeline_final_app)
    if answer.status_int // 100 != 2:
        sys.exit(f"the bucket could not be made: {answer.status}")
    _serve(sockets["proxy"], apps["proxy"])
    for thread in storage:
        thread.wait()


def _port(configuration: Path) -> int:
    parser = ConfigParser()
    parser.read(configuration)
    return parser.getint("DEFAULT", "bind_port")


def _make_ring(file: Path, port: int) -> None:
    builder = RingBuilder(_PART_POWER, 1, 0)
    builder.add_dev(
        {"id": 0, "region": 1, "zone": 1, "weight": 1, "ip": "127.0.0.1", "port": port, "device": "disk"}
    )
    builder.rebalance()
    builder.get_ring().save(str(file))


def _serve(socket: object, app: object) -> None:
    eventlet_wsgi.server(
        socket,
        app,
        utils.NullLogger(),
        protocol=SwiftHttpProtocol,
        capitalize_response_headers=False,  # the S3 interface needs "ETag" unchanged
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""A password in a file is read for each connection to NATS, so that it may be replaced."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from elanus.core.errors import InvalidParameter
from elanus.nats.connection import NatsConnection
from elanus.nats.source import NatsSource

INFO = {"server_id": "s", "version": "2.12.0", "headers": True, "max_payload": 1 << 20, "auth_required": True}
TIMEOUT_S = 30.0


class Server:
    """A NATS server as far as it greets clients: it knows one password at a time."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.clients: list[asyncio.StreamWriter] = []
        self.refused = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.clients.append(client)
        client.write(f"INFO {json.dumps(INFO)}\r\n".encode())
        while line := await reader.readline():
            word, _, sent = line.decode().strip().partition(" ")
            if word == "PING":
                client.write(b"PONG\r\n")
            elif word == "CONNECT" and json.loads(sent)["pass"] != self.password:
                client.write(b"-ERR 'Authorization Violation'\r\n")
                self.refused.set()
                break
        client.close()


def test_a_connection_that_is_made_again_uses_the_password_that_is_in_the_file_then(tmp_path: Path) -> None:
    file = tmp_path / "nats.creds"

    async def body() -> None:
        file.write_text("ada:first\n")
        server = Server("first")
        listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        link = NatsConnection(NatsSource((f"nats://{host}:{port}",), credentials=file))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await link._connect("test")
                server.password = "second"
                broken = asyncio.Event()
                async with link.inbox(lambda message: broken.set() if message is None else None):
                    server.clients[0].close()
                    await broken.wait()
                    await server.refused.wait()
                    file.unlink()
                    await asyncio.sleep(0.5)  # some tries find no file
                    file.write_text("ada:second\n")
                    await link.ready(TIMEOUT_S)
        finally:
            await link.close()
            listening.close()
            for client in server.clients:
                client.close()
            await asyncio.gather(*(c.wait_closed() for c in server.clients), return_exceptions=True)
            await listening.wait_closed()

    asyncio.run(body())


@pytest.mark.parametrize("text", ["", "ada"])
def test_a_file_without_credentials_is_refused_before_anything_is_sent(tmp_path: Path, text: str) -> None:
    file = tmp_path / "nats.creds"
    file.write_text(text)
    link = NatsConnection(NatsSource(("nats://127.0.0.1:9",), credentials=file))
    with pytest.raises(InvalidParameter, match="has neither NATS credentials nor a line user:password"):
        asyncio.run(link._connect("test"))

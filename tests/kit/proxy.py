"""A proxy on loopback that does to a connection what networks do: it loses an answer, a question, or both; it hangs; it delivers late."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum


class Net(Enum):
    """What becomes of one exchange: a question to the server, and its answer."""

    DONE = "it goes there and back"
    LOST = "the answer is lost: the connection is cut after the server has done it"
    REFUSED = "the connection is cut before the server hears of it"
    LATE = "the connection is cut, and the server hears of it when land() is called"
    SILENT = "the server does it, and nothing comes back; nobody is told that the connection is dead"


class Proxy:
    """Stands before a server; ``on_exchange`` says what becomes of each exchange. Connecting, and logging in, always works."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.on_exchange: Callable[[], Net] | None = None
        self.late: list[Callable[[], None]] = []
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *raised: object) -> None:
        self._listener.close()
        for each in self._open:
            _cut(each)

    def land(self) -> None:
        """Deliver what is late, and wait until the server has done it."""
        while self.late:
            self.late.pop(0)()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(self._server)
        self._open += [client, server]
        is_lost, is_silent = threading.Event(), threading.Event()

        def back() -> None:
            with suppress(OSError):
                while answer := server.recv(1 << 16):
                    if is_lost.is_set():
                        _cut(client)
                    elif not is_silent.is_set():
                        client.sendall(answer)
            _cut(client)

        threading.Thread(target=back, daemon=True).start()
        logged_in = False
        with suppress(OSError):
            while question := client.recv(1 << 16):
                # Logging in is what comes before the first Parse ("P"), Query ("Q") or Bind ("B") of the protocol.
                logged_in = logged_in or question[:1] in b"PQB"
                fate = self.on_exchange() if logged_in and self.on_exchange and question[:1] != b"X" else Net.DONE
                if fate is Net.LATE:
                    self.late.append(lambda question=question: _delivered(server, question))  # type: ignore[misc]
                    is_silent.set()
                    _cut(client)
                    return
                if fate is Net.REFUSED:
                    break
                if fate is Net.LOST:
                    is_lost.set()
                elif fate is Net.SILENT:
                    is_silent.set()
                server.sendall(question)
        _cut(server)
        _cut(client)


def _delivered(server: socket.socket, question: bytes) -> None:
    """Send it, say goodbye, and wait until the server has closed the connection: then it has done it."""
    with suppress(OSError):
        server.sendall(question + b"X\0\0\0\x04")
        while server.recv(1 << 16):
            pass
    _cut(server)


def _cut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()

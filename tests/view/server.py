"""``transcript-store serve`` as a process, and requests that no browser would send."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cli.helpers import COMMAND, ENVIRONMENT

_ADDRESS = re.compile(r'url=http://(127\.0\.0\.1:(\d+))/([A-Za-z0-9_-]+)/"')


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Server:
    """The process, when it answers."""

    def __init__(self, process: subprocess.Popen[str], entrance: Path) -> None:
        self.process = process
        self.entrance = entrance
        found = _ADDRESS.search(entrance.read_text())
        assert found is not None
        self.host, self.port, self.token = found[1], int(found[2]), found[3]
        self.url = f"http://{self.host}/{self.token}/"

    def send(self, data: bytes) -> Answer:
        """Bytes as they are; the answer until the server ends it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(data)
            received = b""
            while piece := connection.recv(65536):
                received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Answer(int(status.split()[1]), headers, body)

    def get(self, path: str = "", *, method: str = "GET", target: str | None = None, **headers: str) -> Answer:
        """A request; ``target`` is the whole path with the token. ``host`` and others replace or add headers; empty is none."""
        named = {"Host": self.host, "Connection": "close"} | {
            name.replace("_", "-").title(): value for name, value in headers.items()
        }
        lines = [f"{method} {target or f'/{self.token}/{path}'} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in named.items() if value]
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; its exit code, and all that it wrote on standard error."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def serving(
    library: Path | str, cache: Path, *, command: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """The command on a library, or another that serves it. It is ready when it says where its file is."""
    cache.mkdir(exist_ok=True)
    process = subprocess.Popen(
        command or (*COMMAND, "serve", str(library), "--no-open"),
        env={**ENVIRONMENT, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        entrance = process.stdout.readline().strip()
        assert entrance, process.stderr.read() if process.stderr else ""
        yield Server(process, Path(entrance))
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()

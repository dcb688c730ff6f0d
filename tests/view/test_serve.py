"""F13, over raw HTTP: ``serve`` answers only its own page. The server is the real command, in a separate process.

What a browser sends and shows is in test_serve_browser.py; here are the requests that no browser sends, and those of other users
of the machine.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND
from tests.view import conversations
from tests.view.server import Server, serving
from transcript_store import ConversationStore, StorageError
from transcript_store.importing import conversation_id
from transcript_store.search import SearchResult

pytest.importorskip("uvicorn", reason="needs the extra `view`")

from transcript_store.serving._pages import _duration


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "library"
    folder.mkdir()
    conversations.showcase(folder / "showcase")
    conversations.store(folder / "hostile", conversations.hostile(), **conversations.HOSTILE_METADATA)
    (folder / "no conversation").mkdir()
    conversations.store(folder.parent / "outside", conversations.OPENAI, provider="openai")
    (folder / "link").symlink_to(folder.parent / "outside")
    return folder


@pytest.fixture(scope="module")
def server(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(library, tmp_path_factory.mktemp("cache")) as running:
        yield running


SAFE_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def test_f13_its_own_page_is_answered(server):
    assert server.get().status == 200
    assert "Bound the wait between retries" in server.get().body.decode()
    assert server.get("c/showcase/").status == 200
    assert server.get("c/showcase/", origin=f"http://{server.host}", sec_fetch_site="same-origin").status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]:{port}",
        "0.0.0.0:{port}",
        "",
    ],
)
def test_f13_a_name_that_leads_here_is_not_this_host(server, host):
    """DNS rebinding: the browser believes that the page of evil.example asks its own server. The name gives it away."""
    answer = server.get(host=host.format(port=server.port))
    assert answer.status in (400, 421)  # without any name h11 refuses it before
    assert b"Bound the wait" not in answer.body


def test_f13_two_names_are_no_name(server):
    request = f"GET /{server.token}/ HTTP/1.1\r\nHost: {server.host}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert server.send(request.encode()).status in (400, 421)
    absolute = f"GET http://evil.example/{server.token}/ HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n\r\n"
    assert server.send(absolute.encode()).status in (400, 404, 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:{port}"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "script"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"},
    ],
)
def test_f13_a_page_of_somebody_else_is_refused(server, headers):
    answer = server.get(**{name: value.format(port=server.port) for name, value in headers.items()})
    assert answer.status == 403
    assert answer.body == b"not this origin"


def test_f13_without_the_token_nothing_is_there(server):
    """A wrong one, a part of it, one more letter: all the same answer, whatever stands behind it."""
    for target in (
        "/",
        "//",
        f"//{server.token}/",
        f"/{server.token[:-1]}/",
        f"/{server.token}x/",
        f"/{server.token.swapcase()}/",
        f"/x/{server.token}/",
        "/favicon.ico",
        "/%00/",
        f"/?{server.token}",
    ):
        answer = server.get(target=target)
        assert (answer.status, answer.body) == (404, b"not found"), target
    assert len(server.token) >= 43  # 256 bits


@pytest.mark.parametrize(
    "name",
    [
        "..", ".", "%2e%2e", "..%2f..%2f", "%2e%2e%2foutside", "....", ".hidden", "..\\outside", "..%5coutside", "%00", "showcase%00",
        "%2fetc", "%252e%252e%252foutside", "outside", "link", "x" * 300, "no%20conversation", "%ff%fe", "showcase%2f..%2fshowcase",
    ],
)  # fmt: skip
def test_f13_a_name_that_is_no_conversation_here_leads_nowhere(server, name):
    """No path is made of what leaves the library: dots, slashes in any spelling, links, names of what is no conversation."""
    for path in (f"c/{name}/", f"c/{name}/events?after=0-0"):
        answer = server.get(path)
        assert answer.status == 404 or b"event: gone" in answer.body, path
        assert b"Paris" not in answer.body
        assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "method", ["HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "get", "FOO"]
)
def test_f13_it_answers_get_alone(server, method):
    """So there is no CORS either: a preflight is refused, and no answer allows anybody anything."""
    answer = server.get("c/showcase/", method=method)
    assert answer.status in (400, 405)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_f13_every_answer_says_what_may_be_done_with_it(server):
    """Refusals too. A page runs its own script alone and stands in no frame."""
    for answer in (
        server.get(),
        server.get("c/showcase/"),
        server.get("c/showcase/?g=0"),
        server.get("c/nobody/"),
        server.get(host="evil.example"),
        server.get(origin="https://evil.example"),
        server.get(method="POST"),
        server.get(target="/"),
        server.send(b"GET\r\n\r\n"),
        server.send(f"GET / HTTP/1.1\r\nHost: {server.host}\r\nHost: evil.example\r\n\r\n".encode()),
    ):
        assert answer.headers.items() >= SAFE_HEADERS.items()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert server.token.encode() not in answer.body


def test_f13_a_request_that_is_too_large_or_no_request_is_refused_and_it_continues(server):
    head = f"GET /{server.token}/ HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n"
    for data in (
        (head + f"X: {'x' * 100_000}\r\n\r\n").encode(),
        (head + "".join(f"X{n}: y\r\n" for n in range(20_000)) + "\r\n").encode(),
        f"GET /{'x' * 100_000} HTTP/1.1\r\n\r\n".encode(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300 + b"\r\n\r\n",
        b"GET\r\n\r\n",
    ):
        with suppress(ConnectionError, IndexError):  # it closed the connection before all was sent
            assert server.send(data).status in (400, 404, 421, 431)
    assert server.get().status == 200


def test_f13_strangers_who_say_nothing_take_no_place_from_its_own_page(server):
    """Any user of the machine can connect and be silent. Who does not know the token is not counted."""
    with ExitStack() as open_ones:
        for _ in range(100):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        assert server.get().status == 200


def test_f13_of_its_own_pages_so_many_are_answered_and_a_refusal_is_as_safe(library, tmp_path):
    asked = "GET /{token}/c/showcase/events?after=0-0 HTTP/1.1\r\nHost: {host}\r\n\r\n"
    with serving(library, tmp_path / "cache") as server, ExitStack() as open_ones:
        for _ in range(64):
            page = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            page.sendall(asked.format(token=server.token, host=server.host).encode())
            assert page.recv(4).startswith(b"HTTP")  # it is being answered
        refused = server.get()
        assert refused.status == 503
        assert refused.headers.items() >= SAFE_HEADERS.items()
        assert server.get(target="/").status == 404  # a stranger learns nothing of that
        open_ones.close()
        while server.get().status == 503:  # until it has noticed that they are gone
            pass


def test_f13_a_web_socket_is_not_made(server):
    asked = {"upgrade": "websocket", "sec_websocket_version": "13", "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert server.get("c/showcase/", connection="Upgrade, close", **asked).status != 101


def test_f13_it_listens_at_the_loopback_address_alone(server):
    """Of the sockets that listen at its port, one is there, and it is 127.0.0.1's. (The kernel's table has it in hexadecimal.)"""
    wanted = f":{server.port:04X}"
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    assert [row[1] for row in rows if row[1].endswith(wanted) and row[3] == "0A"] == [f"0100007F{wanted}"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_f13_the_token_stands_in_one_file_that_its_owner_alone_can_read(library, tmp_path, number):
    """In no argument, no environment, no output, no log; and the file goes with the server, whichever signal ends it."""
    with serving(library, tmp_path / "cache") as server:
        assert server.entrance.stat().st_mode & 0o777 == 0o600
        assert server.entrance.parent.stat().st_mode & 0o777 == 0o700
        for shown in ("cmdline", "environ"):
            assert server.token.encode() not in Path(f"/proc/{server.process.pid}/{shown}").read_bytes()
        server.get()
        server.get("c/showcase/")
        server.get("c/nobody/", host="evil.example")
        server.get(f"?q={server.token}")
        assert server.stop(number) == (130, "")
        assert not server.entrance.parent.exists()
        kept = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
        assert all(server.token.encode() not in file.read_bytes() for file in kept)


def named_in_processes(token: str) -> list[str]:
    """The processes of this machine that have the token in their arguments or, where that can be read, in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if token.encode() in (process / "cmdline").read_bytes():
                found.append(f"{process.name}: its arguments")
            if token.encode() in (process / "environ").read_bytes():
                found.append(f"{process.name}: its environment")
    return found


BROWSER = """
import json, os, sys, time
from urllib.parse import urlsplit
told = open(os.environ["NOTED"] + ".new", "w")
json.dump([sys.argv, dict(os.environ)], told)
told.close()
os.rename(told.name, os.environ["NOTED"])
until = time.monotonic() + 60
while os.path.exists(urlsplit(sys.argv[1]).path) and time.monotonic() < until:
    time.sleep(0.05)
"""


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_f13_the_token_stands_in_no_argument_of_any_process_while_a_browser_is_open(library, tmp_path):
    """The browser is started with the path of the file; while it is open, idle and after requests, no process shows the token."""
    browser = tmp_path / "browser.py"
    browser.write_text(BROWSER)
    environment = {
        "BROWSER": f"{shlex.quote(sys.executable)} {shlex.quote(str(browser))} %s &",
        "NOTED": str(tmp_path / "noted"),
    }
    command = (*COMMAND, "serve", str(library))
    with serving(library, tmp_path / "cache", command=command, environment=environment) as server:
        server.get()  # answered only when the browser was started
        while not (tmp_path / "noted").exists():
            assert server.process.poll() is None
        arguments, environ = json.loads((tmp_path / "noted").read_text())
        assert arguments[-1] == server.entrance.as_uri()
        assert server.token not in json.dumps([arguments, environ])
        assert named_in_processes(server.token) == []
        server.get("c/showcase/")
        assert named_in_processes(server.token) == []
        server.stop()  # the browser ends when the file is gone


LOGGED = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[2])
for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio"):
    logging.getLogger(name).setLevel(logging.DEBUG)
from transcript_store.serving import serve
serve(sys.argv[1], ready=lambda path: print(path, flush=True), failed=lambda error: logging.getLogger("mine").error("failed", exc_info=error))
"""


def test_f13_the_token_stands_in_no_log_also_where_everything_is_logged(library, tmp_path):
    """A program that logs at DEBUG, with asyncio's debugging on: uvicorn's log of accesses is off, and no line has the token."""
    log = tmp_path / "log"
    command = (sys.executable, "-c", LOGGED, str(library), str(log))
    with serving(library, tmp_path / "cache", command=command, environment={"PYTHONASYNCIODEBUG": "1"}) as server:
        assert server.token not in log.read_text()  # idle: nobody asked yet
        server.get()
        server.get("c/showcase/")
        server.get("c/nobody/", host="evil.example")
        server.get(f"?q={server.token}")
        server.get(target=f"//{server.token}/")
        server.send(f"GET /{server.token}/ HTTP/1.1\r\nHost: {server.host}\r\nno header\r\n\r\n".encode())
        events(server, "c/showcase/events?after=0-0")
        _, said = server.stop(signal.SIGINT)
    assert "asyncio" in log.read_text()  # it is a log, and it is on
    assert server.token not in log.read_text() + said


def seen(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder: mode, time and bytes."""
    return {
        str(file): (file.lstat().st_mode, file.lstat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in sorted(folder.rglob("*"))
    }


def test_f13_it_never_writes(library, tmp_path):
    """Whatever is asked: no byte, no mode and no time below the library is another after it."""
    before = seen(library)
    with serving(library, tmp_path / "cache") as server:
        for path in (
            "",
            "?q=retry",
            "?filter=wait&sort=title",
            "c/showcase/",
            "c/showcase/?g=0",
            "c/hostile/",
            "c/nobody/",
            "?after=x",
        ):
            server.get(path)
        events(server, "c/showcase/events?after=0-0")
    assert seen(library) == before


def events(server: Server, path: str, wanted: int = 1, **headers: str) -> list[dict[str, str]]:
    """The first events of a stream, as their fields."""
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"GET /{server.token}/{path} HTTP/1.1\r\nHost: {server.host}\r\n{named}\r\n".encode())
        stream = connection.makefile("r", encoding="utf-8", newline="\n")
        found: list[dict[str, str]] = []
        fields: dict[str, str] = {}
        for line in stream:
            name, colon, value = line.rstrip("\r\n").partition(": ")
            if colon and name in ("id", "data", "event"):
                fields[name] = value
            elif line == "\n" and fields:
                found.append(fields)
                fields = {}
                if len(found) == wanted:
                    break
        return found


def test_events_continue_from_the_last_one_that_was_seen(library, server, tmp_path):
    """``Last-Event-ID`` counts before what the page had. A piece that did not change is not sent again."""
    path = library / "growing"
    with ConversationStore(path) as conversation:
        conversation.initialize(messages=conversations.OPENAI[:2], provider="openai")
        server.get("c/growing/")
        conversation.append_message(conversations.OPENAI[2])
        (answered,) = events(server, "c/growing/events?after=0-2")
        assert answered["id"] == "0-3"
        changed = json.loads(answered["data"])
        assert [number for number, _ in changed["pieces"]] == [1]  # the call, which has its result now
        assert "18 degrees" in changed["pieces"][0][1]
        conversation.append_message(conversations.OPENAI[3])
        conversation.append_message({"role": "user", "content": "And in Rome?"})
        (more,) = events(server, "c/growing/events?after=0-2", last_event_id="0-3")
        assert more["id"] == "0-5"
        assert [number for number, _ in json.loads(more["data"])["pieces"]] == [2, 3]
        assert [prompt[:2] for prompt in json.loads(more["data"])["prompts"]] == [["5", "And in Rome?"]]
        conversation.replace_transcript([{"role": "user", "content": "Anew."}])
    (replaced,) = events(server, "c/growing/events?after=0-5")
    assert (replaced["id"], json.loads(replaced["data"])["replaced"]) == ("1-1", True)
    assert server.get("c/growing/events?after=nonsense").status == 400


def test_a_conversation_that_is_deleted_says_so(library, server):
    import shutil

    conversations.store(library / "short", conversations.OPENAI, provider="openai")
    server.get("c/short/")
    shutil.rmtree(library / "short")
    assert server.get("c/short/").status == 404
    assert server.get("c/short/events?after=0-4").status == 404


def test_an_earlier_generation_is_a_page_and_one_that_never_was_is_not(server):
    assert "Hello! What shall we do?" in server.get("c/showcase/?g=0").body.decode()
    for none in ("7", "-1", "0x0", "+0", "%D9%A0", "%EF%BC%90", "12345678901234567890", "9" * 5000):
        assert server.get(f"c/showcase/?g={none}").status == 404
    assert server.get("c/showcase/?g=").status == 200  # without a number: the live one


def test_damage_is_shown_and_not_followed(library, server):
    from tests.cli.helpers import damage

    path = library / "damaged"
    conversations.store(path, conversations.OPENAI, provider="openai")
    damage(path, b"18 degrees", b"99 degrees")
    answer = server.get("c/damaged/")
    assert answer.status == 200
    assert "This conversation is damaged." in answer.body.decode()
    assert "data-position" not in answer.body.decode()


def test_the_list_is_filtered_sorted_and_paged(library, tmp_path):
    many = tmp_path / "many"
    many.mkdir()
    for number in range(60):
        conversations.store(
            many / f"c{number:02}", [{"role": "user", "content": "x"}], labels={"title": f"Talk {number:02}"}
        )
    with serving(many, tmp_path / "cache") as server:

        def titles(path: str) -> list[str]:
            return re.findall(r'<span class="title">(.*?)</span>', server.get(path).body.decode())

        assert len(titles("?sort=title")) == 50
        assert titles("?sort=title")[0] == "Talk 00"
        more = re.search(r'href="(\?[^"]*)" class="more"', server.get("?sort=title").body.decode())
        assert more is not None
        assert titles(more[1].replace("&amp;", "&"))[-1] == "Talk 59"
        assert titles("?filter=title:07") == ["Talk 07"]
        assert titles("?filter=07") == ["Talk 07"]
        assert len(titles("?sort=nonsense&after=nonsense")) == 50


def test_a_conversation_without_a_title_is_called_by_its_first_prompt(tmp_path):
    """The list, its hits and its page show the first prompt; after a replace the new one; without a prompt its provider and when it began."""
    folder = tmp_path / "library"
    folder.mkdir()
    path = conversations.store(folder / "one", [])
    conversations.store(folder / "none", [])
    with serving(folder, tmp_path / "cache") as server:

        def named() -> list[str]:
            return re.findall(r'<span class="title">(.*?)</span>', server.get("?sort=records").body.decode())

        def replace(*prompts: str) -> None:
            with ConversationStore(path) as conversation:
                conversation.load()
                conversation.replace_transcript([{"role": "user", "content": prompt} for prompt in prompts])

        assert all(re.fullmatch(r"claude, 20\d\d-\d\d-\d\d \d\d:\d\d", name) for name in named())
        replace("/mode plan", f"Why <b>so</b> slow?\n{'x ' * 400}")
        assert named()[0].startswith("Why &lt;b&gt;so&lt;/b&gt; slow? x x")
        assert len(named()[0]) < 200
        assert 'href="c/one/">Why &lt;b&gt;so' in server.get("?q=slow").body.decode()
        replace("/mode plan")
        assert named()[0] == "/mode plan"


def test_search_shows_each_hit_in_its_context(server):
    page = server.get("?q=jitter").body.decode()
    assert re.search(r'<a href="c/showcase/#7" class="row">.*has no <mark>jitter</mark>, so clients', page)
    assert "<mark>" in server.get("?q=jitter&filter=retries").body.decode()
    assert "<mark>" not in server.get("?q=jitter&filter=elsewhere").body.decode()
    assert "No conversation matches" in server.get("?filter=nobody-called-it-so").body.decode()
    assert "No message has this" in server.get("?q=nobody-said-this").body.decode()


def test_what_the_system_refuses_to_read_is_told_with_the_hits():
    """Nothing said that there may be more. The page is made of an answer: root can open what is closed to everybody else."""
    # The server is another process, and takes no answer of ours.
    from transcript_store.serving._pages import Asked, hits_page

    def page(*refused: StorageError) -> str:
        answer = SearchResult(
            hits=(), total=0, elsewhere={}, not_indexed=0, is_busy=False, ignored=(), not_read=refused
        )
        return hits_page("chats", answer, Asked(query="socket"), {}).decode()

    one, two = (
        StorageError(path=path, doing="look at it", errno=errno.EACCES, strerror="Permission <denied>")
        for path in ("/chats/a", "/chats/b")
    )
    assert "No message has this; the system refuses to read 1 conversation: Permission &lt;denied&gt;<" in page(one)
    assert "the system refuses to read 2 conversations: Permission &lt;denied&gt;<" in page(one, two)
    assert '<p class="count" role="status">' in page(one)  # unfinished, it would ask again for ever
    assert "the system refuses" not in page()


def test_a_directory_that_is_not_there_and_an_extra_that_is_not_installed(tmp_path, monkeypatch):
    import sys

    from transcript_store import ConversationNotFoundError, MissingExtraError
    from transcript_store.serving import serve

    with pytest.raises(ConversationNotFoundError, match="there is no such directory"):
        serve(tmp_path / "nobody", ready=print)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("transcript_store.serving._")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[view\]'$"):
        serve(tmp_path, ready=print)


def test_a_row_has_the_tokens_the_cost_and_the_last_prompt(tmp_path):
    """A cost only if every reply has a price; the last prompt unless the conversation is called by it, and never as markup."""
    folder = tmp_path / "library"
    ask = [{"role": "user", "content": "Who wrote it?"}, {"role": "assistant", "content": "Nobody."}]
    more = [{"role": "user", "content": "<b>And now?</b>\nmore"}, {"role": "assistant", "content": "Still nobody."}]
    usage = {"input_tokens": 1_000_000, "output_tokens": 20}
    for name, model, said in (
        ("priced", "claude-haiku-5-5", [*ask, *more]),
        ("unpriced", "of-nobody", [*ask, *more]),
        ("alone", "claude-haiku-5-5", ask),
    ):
        extras = [{"usage": usage, "model": model} if message["role"] == "assistant" else None for message in said]
        conversations.store(folder / name, said, extras=extras, provider="openai")
    with serving(folder, tmp_path / "cache") as server:
        deadline = time.monotonic() + 60
        while re.search(r'class="count"[^>]*data-unfinished', html := server.get().body.decode()):
            assert time.monotonic() < deadline
    rows = dict(re.findall(r'<a href="c/(\w+)/"(.*?)</a>', html, re.DOTALL))
    assert "2,000,040 tokens · $" in rows["priced"]
    assert "2,000,040 tokens" in rows["unpriced"]
    assert "$" not in rows["unpriced"]
    assert "1,000,020 tokens · $" in rows["alone"]
    assert "&lt;b&gt;And now?&lt;/b&gt;" in rows["priced"]
    assert "Last: " not in rows["alone"]


def test_a_session_and_its_sub_agents_lead_to_each_other(tmp_path):
    """The label has the id that the program gave the session, which is not the library's. A title is text."""
    folder = tmp_path / "library"
    whole = conversation_id("claude-code", "s1")
    with ConversationStore(conversations.store(folder / whole, conversations.OPENAI, provider="openai")) as store:
        store.load()
        store.append_event({"import": {"generation": 0, "format": "claude-code", "session": "s1"}})
    for name, program, session in (
        ("found", "claude-code", "s1"),
        ("gone", "claude-code", "s2"),
        ("other", "codex", "s1"),
    ):
        labels = {"source": program, "part_of": session, "title": f"<b>{name}"}
        conversations.store(folder / name, conversations.OPENAI, provider="openai", labels=labels)
    with serving(folder, tmp_path / "cache") as server:
        assert f'<dt>Part of</dt><dd><a href="../{whole}/">s1</a></dd>' in server.get("c/found/").body.decode()
        assert "<dt>Part of</dt><dd>s2</dd>" in server.get("c/gone/").body.decode()
        parent = server.get(f"c/{whole}/").body.decode()
        assert re.findall(r'<li><a href="(../[^"]*)">(.*?)</a></li>', parent) == [("../found/", "&lt;b&gt;found")]
        assert "1 sub-agent" in parent
        assert server.get("").body.decode().count(" · sub-agent") == 3


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ("2026-03-01T10:00:59", ""),
        ("2026-03-01T10:45:30", "45 min"),
        ("2026-03-01T12:00:00", "2 h"),
        ("2026-03-01T12:41:00", "2 h 41 min"),
        ("2026-03-04T09:00:00", "2 days"),
        ("2026-03-01T09:00:00", ""),
        ("no time", ""),
    ],
)
def test_a_duration_is_never_rounded_up(end, shown):
    assert _duration("2026-03-01T10:00:00", end) == shown

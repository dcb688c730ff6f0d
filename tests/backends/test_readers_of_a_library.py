"""Readers of a library on a backend: an agent that searches its past (`mcp`), and a browser (`serve`).

Both were for folders alone: whoever kept conversations on a database had to fork each into a folder to look at it. Nothing of them may claim a
conversation: an agent that only looks would depose the one that works.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.sealed import library_on
from tests.kit.messages import user_message
from tests.sealed.conversations import CANARY, KEY, MESSAGES
from tests.search.libraries import begun
from transcript_store import ConversationLibrary, ConversationNotFoundError
from transcript_store.mcp import LibraryTools, Scope
from transcript_store.search import SearchIndex
from transcript_store.testing import BackendRequest, SimulatedBackend, SimulatedFileSystem

NOWHERE = "0b8f5c1e-4f6d-4f0e-9d5b-2f6f0f3c9a51"


@pytest.fixture
def library(backend: SimulatedBackend) -> ConversationLibrary:
    return ConversationLibrary(backend, file_system=SimulatedFileSystem())


def requests(backend: SimulatedBackend) -> list[str]:
    """The calls that are made from now on."""
    made: list[str] = []

    def seen(request: BackendRequest) -> None:
        made.append(request.call)

    backend.on_request = seen
    return made


WRITES = {"put", "put_pack", "put_summary", "put_key", "expunge", "delete_slots"}


# ---- an agent that asks for its past ---------------------------------------------------------------------------------------


@pytest.fixture
def past(library: ConversationLibrary, tmp_path: Path) -> Iterator[LibraryTools]:
    with LibraryTools(library, cache=tmp_path / "cache") as opened:
        yield opened


def up_to_date(library: ConversationLibrary, tmp_path: Path) -> None:
    """An answer waits for its index a moment and no longer: on a machine that is busy it would not have everything."""
    with SearchIndex(library, cache=tmp_path / "cache") as index:
        index.update(refresh=True)


def test_an_agent_reads_its_past_on_a_backend(
    past: LibraryTools, library: ConversationLibrary, backend: SimulatedBackend, tmp_path: Path
) -> None:
    """R9: listed, found, read page by page, one message whole; and no request writes anything."""
    own_id = begun(library, *(f"the socket {number}" for number in range(30)), labels={"title": "A socket"})
    up_to_date(library, tmp_path)
    made = requests(backend)
    (listed,) = past.list_conversations("socket")["conversations"]
    assert (listed["id"], listed["records"], listed["quoted"]["title"]) == (own_id, 30, "A socket")
    assert len(past.search_conversations("socket", limit=25)["hits"]) == 25
    first = past.read_conversation(own_id, limit=20)
    rest = past.read_conversation(cursor=first["cursor"])
    assert [one["seq"] for page in (first, rest) for one in page["messages"]] == list(range(1, 31))
    assert past.read_record(own_id, 30)["quoted"]["parts"][0]["text"] == "the socket 29"
    assert made
    assert not WRITES.intersection(made)


def test_what_is_written_meanwhile_is_read(past: LibraryTools, library: ConversationLibrary) -> None:
    """R9: each answer is of the present state, a replace invalidates cursors, and a deleted conversation is gone."""
    own_id = begun(library, "one", "two", "three")
    with library.open(own_id) as writer:
        page = past.read_conversation(own_id, limit=2)
        writer.append_message(user_message("four"))
        assert [one["seq"] for one in past.read_conversation(cursor=page["cursor"])["messages"]] == [3, 4]
        writer.replace_transcript([user_message("all anew")])
        with pytest.raises(ValueError, match="was replaced since"):
            past.read_conversation(cursor=page["cursor"])
    library.delete(own_id)
    with pytest.raises(ValueError, match="no conversation with this id"):
        past.read_conversation(own_id)


def test_labels_bound_what_an_agent_sees_there(library: ConversationLibrary, tmp_path: Path) -> None:
    """The scope uses the present labels, whatever the index has: without the label the conversation is out of scope."""
    own_id = begun(library, "mine", labels={"project": "x"})
    other = begun(library, "not mine", labels={"project": "y"})
    with LibraryTools(library, cache=tmp_path / "cache", scope=Scope(["project=x"])) as past:
        assert [one["id"] for one in past.list_conversations()["conversations"]] == [own_id]
        for name in (other, NOWHERE, "../x", "last"):
            with pytest.raises(ValueError, match="no conversation with this id"):
                past.read_conversation(name)
        with library.open(own_id) as writer:
            writer.update_metadata(labels={"project": "y"})
        with pytest.raises(ValueError, match="no conversation with this id"):
            past.read_conversation(own_id)


def test_what_is_sealed_there_needs_the_key(
    backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path
) -> None:
    """Without the key nothing is shown; with it everything is, and nothing of it is in the cache."""
    sealed = library_on(backend)
    own_id = sealed.create(messages=MESSAGES).id
    with LibraryTools(library, cache=tmp_path / "cache") as past:
        assert past.list_conversations()["conversations"][0]["is_sealed"]
        assert CANARY not in json.dumps([past.list_conversations(), past.search_conversations(CANARY)])
    with LibraryTools(library, cache=tmp_path / "cache", encryption_key=KEY) as past:
        assert CANARY in json.dumps(past.read_conversation(own_id))
        assert CANARY in json.dumps(past.search_conversations(CANARY))
    assert not any(CANARY.encode() in file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file())


# ---- a person with a browser -----------------------------------------------------------------------------------------------


class Browser:
    """Asks the application as a server would, without a socket."""

    def __init__(self, library: ConversationLibrary, cache: Path, **keys: Any) -> None:
        from transcript_store.serving._library import home_of
        from transcript_store.serving._server import Application

        self.index = SearchIndex(library, cache=cache, **keys)
        self.application = Application(home_of(library, keys), self.index)

    def close(self) -> None:
        self.application.close()
        self.index.close()

    def get(self, path: str, query: str = "", *, events: int = 0) -> tuple[int, str]:
        """The answer; of a stream so many pieces."""
        import anyio

        found: dict[str, Any] = {"status": 0, "body": b"", "pieces": 0}
        closing = self.application.closing

        async def asked() -> None:
            over = anyio.Event()

            async def receive() -> dict[str, Any]:
                await over.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                found["status"] = message.get("status", found["status"])
                found["body"] += message.get("body", b"")
                found["pieces"] += bool(message.get("body"))
                if events and found["pieces"] == events:
                    over.set()

            scope: dict[str, Any] = {
                "type": "http",
                "method": "GET",
                "path": path,
                "raw_path": path.encode(),
                "root_path": "",
            }
            scope |= {"query_string": query.encode(), "headers": [], "http_version": "1.1", "scheme": "http"}
            await self.application.app(scope, receive, send)

        anyio.run(asked)
        assert not closing.is_set()
        return found["status"], found["body"].decode()


@pytest.fixture
def client(library: ConversationLibrary, tmp_path: Path) -> Iterator[Browser]:
    pytest.importorskip("starlette", reason="needs the extra `view`")
    begun(library, "Why does the socket time out?", labels={"title": "A socket"})
    opened = Browser(library, tmp_path / "cache")
    yield opened
    opened.close()


def test_a_library_on_a_backend_is_shown(
    client: Browser, library: ConversationLibrary, backend: SimulatedBackend, tmp_path: Path
) -> None:
    """F12, R9: the list, a search, the page of a conversation and its news; and no request writes anything."""
    (summary,) = library.list()
    up_to_date(library, tmp_path)
    with library.open(summary.id or "") as writer:
        status, page = client.get(f"/c/{summary.id}/")
        assert (status, "Why does the socket time out?" in page) == (200, True)
        writer.append_message({"role": "assistant", "content": "It is bound to the wrong address."})
        made = requests(backend)
        status, news = client.get(f"/c/{summary.id}/events", "after=0-1", events=2)
        assert (status, "bound to the wrong address" in news) == (200, True)
        assert "A socket" in client.get("/")[1]
        assert f"c/{summary.id}/#1" in client.get("/", "q=socket")[1]
        assert "bound to the wrong address" in client.get(f"/c/{summary.id}/")[1]
        assert not WRITES.intersection(made)


@pytest.mark.parametrize("name", [NOWHERE, "last", "..", "%2e%2e", "a", ""])
def test_what_is_not_there_is_not_found(client: Browser, name: str) -> None:
    """F13: a name of a browser is an id or nothing; one that is not there is no error of the server's."""
    assert client.get(f"/c/{name}/")[0] == 404


def test_an_earlier_generation_and_damage_have_their_pages(
    client: Browser, library: ConversationLibrary, backend: SimulatedBackend
) -> None:
    """A page of a generation that was replaced is shown; of damaged slots there is a page that says so, and what to do."""
    (summary,) = library.list()
    own_id = summary.id or ""
    with library.open(own_id) as writer:
        writer.replace_transcript([user_message("All anew")])
    assert "Why does the socket time out?" in client.get(f"/c/{own_id}/", "g=0")[1]
    assert client.get(f"/c/{own_id}/", "g=7")[0] == 404
    backend.set_object(own_id, "s/1", backend.object(own_id, "s/1").replace(b"socket", b"sockets"))
    damaged = Browser(library, Path(client.index.status().path or ".").parent / "other")
    status, page = damaged.get(f"/c/{own_id}/")
    damaged.close()
    assert (status, "slot 1" in page) == (500, True)


def test_what_is_sealed_there_is_shown_with_the_key(
    backend: SimulatedBackend, library: ConversationLibrary, tmp_path: Path
) -> None:
    """What is plain beside it is shown too: keys are given to what is sealed, and to nothing else."""
    pytest.importorskip("starlette", reason="needs the extra `view`")
    sealed = library_on(backend)
    own_id, plain = sealed.create(messages=MESSAGES).id, begun(library, "Nothing is hidden")
    client = Browser(library, tmp_path / "cache", encryption_key=KEY)
    assert CANARY in client.get(f"/c/{own_id}/")[1]
    assert "Nothing is hidden" in client.get(f"/c/{plain}/")[1]
    client.close()
    client = Browser(library, tmp_path / "cache")
    status, page = client.get(f"/c/{own_id}/")
    client.close()
    assert CANARY not in page
    assert status == 500


def test_a_server_is_not_begun_for_nothing(tmp_path: Path) -> None:
    """A missing directory is refused before the browser opens, and so is a backend that does not answer."""
    pytest.importorskip("starlette", reason="needs the extra `view`")
    from transcript_store.serving._library import home_of

    with pytest.raises(ConversationNotFoundError):
        home_of(ConversationLibrary(tmp_path / "nowhere"), {})

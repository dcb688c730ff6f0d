"""Our own contract, which none of the frameworks' tests asks for; and what is ours of this one."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import agents
import pytest
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession, SessionSettings

from tests.compat.api import surface
from tests.integrations.openai_agents.bench import Bench
from transcript_store import (
    ConversationChangedError,
    ConversationLibrary,
    ConversationStore,
    CorruptTranscriptError,
    InvalidMessageError,
)
from transcript_store.integrations import _conversations
from transcript_store.integrations.openai_agents import TranscriptSession
from transcript_store.redaction import SecretRedactor
from transcript_store.testing import SimulatedBackend, SimulatedObjectStore, check_integration


def item(n):
    return {"role": "user", "content": f"{n}"}


@pytest.fixture
def session(tmp_path):
    session = TranscriptSession("user-1", tmp_path / "chats")
    yield session
    session.close()


def test_a_directory_may_begin_with_a_tilde(tmp_path, monkeypatch):
    """And no folder that is called ~ is made where the program runs. What is no directory is told as such."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    session = TranscriptSession("user-1", "~/chats")
    asyncio.run(session.add_items([item(1)]))
    session.close()
    assert len(ConversationLibrary(tmp_path / "home/chats").list()) == 1
    assert not (tmp_path / "~").exists()
    with pytest.raises(
        TypeError, match=r"a path must be a str or an os\.PathLike of one, not ConversationStore; pass its directory"
    ):
        TranscriptSession("user-1", ConversationStore(tmp_path))  # type: ignore[arg-type]


def test_a_link_is_followed_before_what_stands_above_it(tmp_path):
    """``link/../chats`` is beside what the link leads to, as for the system: else all sessions began anew, in another folder."""
    tmp_path.joinpath("real/sub").mkdir(parents=True)
    tmp_path.joinpath("link").symlink_to(tmp_path / "real/sub")
    session = TranscriptSession("user-1", tmp_path / "link/../chats")
    asyncio.run(session.add_items([item(1)]))
    session.close()
    assert len(ConversationLibrary(tmp_path / "real/chats").list()) == 1


def test_the_contract_of_integrations():
    """I1 to I11."""
    check_integration(Bench)


@pytest.mark.parametrize("make_backend", [SimulatedBackend, SimulatedObjectStore])
def test_the_contract_of_integrations_on_a_backend(make_backend):
    """I1 to I10: no call of a framework sees that the conversation is on a backend, which one process has in memory."""
    backend = make_backend()
    check_integration(Bench, backend=lambda: backend, is_shared=False)


@pytest.mark.parametrize("change", ["clear", "compact", "pop", "add"])
def test_a_change_on_a_backend_that_another_got_in_front_of(change):
    """Another process writes in front of each of our first puts: the call is made again, and nobody is told, and nothing lost."""
    backend = SimulatedBackend()
    session = TranscriptSession("user-1", ConversationLibrary(backend))
    asyncio.run(fill(session, [1, 2]))
    name, others = os.path.basename(session.directory), [3, 4, 5]

    def in_front(request):
        if request.call == "put" and others:
            backend.on_request = None
            with ConversationLibrary(backend).store(name, hold_lock=False) as other:
                other.load()
                other.append_message(item(others.pop(0)))
            backend.on_request = in_front

    async def scenario():
        backend.on_request = in_front
        if change == "clear":
            await session.clear_session()
            assert await session.get_items() == []
        elif change == "compact":
            assert await session._atomic_replace_items([item("summary")])
            assert await session.get_items() == [item("summary")]
        elif change == "pop":
            assert await session.pop_item() == item(5)
            assert await session.get_items() == [item(n) for n in (1, 2, 3, 4)]
        else:
            await fill(session, [6])
            assert await session.get_items() == [item(n) for n in range(1, 7)]

    asyncio.run(scenario())
    assert others == []
    with session.conversation() as conversation:
        said = [
            record.message["content"]
            for generation in conversation.generations()
            for record in conversation.get_records(generation=generation.number)
            if record.message
        ]
    assert {"1", "2", "3", "4", "5"} <= set(said)
    session.close()


def test_what_a_backend_cannot_do_is_refused_when_the_session_is_made():
    """What is cleared stays in its slots."""
    with pytest.raises(ValueError, match="keep_cleared must be True on a backend"):
        TranscriptSession("user-1", ConversationLibrary(SimulatedBackend()), keep_cleared=False)


def test_what_a_library_takes_out_is_taken_out():
    """P22: a library that keeps secrets out keeps them out of a session too, which is told nothing of them."""
    backend = SimulatedBackend()
    session = TranscriptSession("user-1", ConversationLibrary(backend, redact=SecretRedactor()))
    asyncio.run(session.add_items([{"role": "user", "content": f"use {SECRET}"}]))
    assert asyncio.run(session.get_items()) == [{"role": "user", "content": "use [redacted:github-token]"}]
    session.close()
    assert not [piece for piece in backend.read(os.path.basename(session.directory)) if SECRET.encode() in piece.data]


async def fill(session, *batches):
    for batch in batches:
        await session.add_items([item(n) for n in batch])


def test_what_was_retracted_cleared_or_compacted_is_still_readable(session):
    """A pop, a clear and a compaction are no deletion: records and generations have it all."""

    async def scenario():
        await fill(session, [1, 2, 3])
        assert await session.pop_item() == item(3)
        await session._atomic_replace_items([item("summary")])
        await fill(session, [4])
        await session.clear_session()
        assert await session.get_items() == []

    asyncio.run(scenario())
    with session.conversation() as conversation:
        said = [
            [record.message["content"] for record in conversation.get_records(generation=n) if record.message]
            for n in (0, 1)
        ]
        assert said == [["1", "2", "3"], ["summary", "4"]]
        assert [generation.record_count for generation in conversation.generations()] == [4, 2, 0]


def test_forgetting(tmp_path):
    """With keep_cleared=False nothing is left of what was cleared and compacted."""
    session = TranscriptSession("user-1", tmp_path, keep_cleared=False)

    async def scenario():
        await fill(session, [1, 2])
        await session._atomic_replace_items([item("summary")])
        await session.clear_session()
        await fill(session, [3])

    asyncio.run(scenario())
    session.close()
    texts = [path.read_text() for path in tmp_path.rglob("*.jsonl")]
    assert len(texts) == 1
    assert "summary" not in texts[0]


def test_limits(session):
    """As the SDK's own: None asks the settings, 0 gives no item, a negative number gives all."""

    async def scenario():
        await fill(session, range(5))
        assert [len(await session.get_items(limit)) for limit in (None, 0, 2, 9, -1)] == [5, 0, 2, 5, 5]
        limited = TranscriptSession("user-1", os.path.dirname(session.directory), {"limit": 3})
        assert await limited.get_items() == [item(n) for n in (2, 3, 4)]
        assert len(await limited.get_items(4)) == 4

    asyncio.run(scenario())


def test_a_compaction_of_the_end_is_one_commit_and_fits_or_is_not_made(session):
    """The end is replaced only if nothing came since it was read; what stands before it keeps its time."""

    async def scenario():
        await fill(session, range(5))
        times = [record.at for record in _records(session)]
        snapshot = await session._get_compaction_snapshot(3)
        assert (snapshot.items, snapshot.complete) == ([item(2), item(3), item(4)], False)
        assert (await session._get_compaction_snapshot(5)).complete
        assert await snapshot.replace_suffix(1, [item("summary")])
        assert await session.get_items() == [item(0), item(1), item(2), item("summary")]
        assert [record.at for record in _records(session)][:3] == times[:3]
        assert not await snapshot.replace_suffix(1, [item("again")])
        assert not await snapshot.replace_suffix(3, [item("nothing to replace")])
        late = await session._get_compaction_snapshot(9, prune_prefix=lambda each: each["content"] < "2")
        assert await late.replace_suffix(3, [item("shorter")])
        assert await session.get_items() == [item(2), item("shorter")]

    asyncio.run(scenario())


def _records(session):
    with session.conversation() as conversation:
        return conversation.get_records()


@pytest.mark.parametrize("mode", ["input", "previous_response_id"])
@pytest.mark.parametrize("change", ["add", "pop", "nothing"])
def test_a_forced_compaction_keeps_what_comes_meanwhile(session, tmp_path, mode, change):
    """What another object adds while the provider compacts is not in its answer, and stays; if items are gone, nothing is replaced."""
    other = TranscriptSession("user-1", tmp_path / "chats")
    before = [item(1), item(2)]

    class Provider:
        async def compact(self, **_):
            if change == "add":
                await fill(other, [3], [4])
            elif change == "pop":
                await other.pop_item()
            return SimpleNamespace(output=[{"type": "compaction", "encrypted_content": "short"}], usage=None)

    async def scenario():
        compacting = OpenAIResponsesCompactionSession(
            "user-1", session, client=SimpleNamespace(responses=Provider()), compaction_mode=mode
        )
        for _ in range(2):  # the second time with what the SDK remembers of the first
            await compacting.add_items(before)
            compaction = compacting.run_compaction({"force": True, "response_id": "resp_1"})
            if change == "pop":
                with pytest.raises(ConversationChangedError, match="retracted or replaced"):
                    await compaction
                assert await session.get_items() == before[:1]
                await session.clear_session()
            else:
                await compaction
                first, *behind = await session.get_items()
                assert first["encrypted_content"] == "short"
                assert behind == ([item(3), item(4)] if change == "add" else [])

    asyncio.run(scenario())
    other.close()


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("change", [None, "add", "pop", "read"])
def test_a_forced_compaction_of_encrypted_items_keeps_what_comes_meanwhile(session, tmp_path, change, limit):
    """EncryptedSession around it reads by ``get_items()`` alone. Another task may read the same object while the provider compacts."""
    key = "0" * 43 + "="
    other = TranscriptSession("user-1", tmp_path / "chats")

    class Provider:
        async def compact(self, **_):
            writer = EncryptedSession("user-1", other, key)
            if change == "add":
                await writer.add_items([item(3)])
                await writer.add_items([item(4)])
            elif change == "pop":
                await writer.pop_item()
            elif change == "read":
                await writer.add_items([item(3), item(4)])
                await asyncio.create_task(session.get_items())
            return SimpleNamespace(output=[{"type": "compaction", "encrypted_content": "short"}], usage=None)

    async def scenario():
        if limit is not None:
            session.session_settings = SessionSettings(limit=limit)
        client = SimpleNamespace(responses=Provider())
        compacting = OpenAIResponsesCompactionSession("user-1", session, client=client, compaction_mode="input")
        encrypted = EncryptedSession("user-1", compacting, key)
        for _ in range(2):
            await encrypted.add_items([item(1), item(2)])
            compaction = encrypted.run_compaction({"force": True, "response_id": "resp_1"})
            if change == "pop":
                with pytest.raises(ConversationChangedError, match="retracted or replaced"):
                    await compaction
                assert await encrypted.get_items() == [item(1)]
                await encrypted.clear_session()
            else:
                await compaction
                kept = [] if change is None else [item(3), item(4)]
                short, *behind = await encrypted.get_items(100)
                assert short["encrypted_content"] == "short"
                assert behind == kept

    asyncio.run(scenario())
    other.close()


def test_a_compaction_that_leaves_nothing_can_be_made_again(session):
    """Everything was replaced by nothing; what the next one reads is empty, and not what was read before the first."""

    class Provider:
        async def compact(self, **_):
            return SimpleNamespace(output=[], usage=None)

    async def scenario():
        client = SimpleNamespace(responses=Provider())
        compacting = OpenAIResponsesCompactionSession("user-1", session, client=client, compaction_mode="input")
        encrypted = EncryptedSession("user-1", compacting, "0" * 43 + "=")
        await encrypted.add_items([item(1), item(2)])
        for _ in range(3):
            await encrypted.run_compaction({"force": True})
            assert await encrypted.get_items() == []

    asyncio.run(scenario())


def test_only_a_wrapper_asks_whether_it_is_a_session_of_the_sdk():
    """``isinstance(session, SQLiteSession)`` is true for EncryptedSession alone: if other code of the SDK begins to ask, look at that."""
    package = Path(agents.__file__).parent
    asks = re.compile(r"(?:isinstance|issubclass)\([^)]*\b(?:SQLiteSession|SessionABC)\b")
    asking = {path.name for path in package.rglob("*.py") if asks.search(path.read_text("utf-8"))}
    assert asking == {"encrypt_session.py"}


def test_a_subclass_is_compacted_by_its_own_methods(tmp_path):
    """Whoever changes what is stored does not get the hooks that go past those changes."""

    class Own(TranscriptSession):
        pass

    own = Own("user-1", tmp_path)
    assert asyncio.run(own._get_compaction_snapshot(3)) is None
    assert asyncio.run(own._atomic_replace_items([])) is False


def test_a_generation_that_cannot_retract_learns_it(tmp_path, session):
    """A conversation that somebody else made under this key is popped all the same."""
    asyncio.run(fill(session, [1]))
    folder = session.directory
    session.close()
    library = ConversationLibrary(os.path.dirname(folder))
    library.delete(os.path.basename(folder))
    with ConversationStore(folder) as made:
        made.initialize(id=os.path.basename(folder), provider="openai-agents", messages=[item(1), item(2)])
    assert asyncio.run(session.pop_item()) == item(2)
    assert asyncio.run(session.get_items()) == [item(1)]


def test_an_item_that_is_too_long(session, tmp_path):
    """It is refused with its place, and nothing of its batch is stored."""
    with pytest.raises(InvalidMessageError, match=r"items\[1\]"):
        asyncio.run(session.add_items([item(1), item("x" * (64 << 20))]))
    assert asyncio.run(session.get_items()) == []


def test_arguments(tmp_path):
    """What cannot be is refused when the object is made."""
    with pytest.raises(ValueError, match="durability"):
        TranscriptSession("user-1", tmp_path, durability="none")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="limitt"):
        TranscriptSession("user-1", tmp_path, {"limitt": 1})
    with pytest.raises(TypeError, match="a key must be text, not NoneType"):
        TranscriptSession(None, tmp_path)  # type: ignore[arg-type]  # one session for all whose id was forgotten
    (tmp_path / "old.db").write_bytes(b"SQLite format 3")
    with pytest.raises(ValueError, match=r"old\.db is a file: name the folder for the conversations"):
        TranscriptSession("user-1", tmp_path / "old.db")
    assert repr(TranscriptSession("user-1", tmp_path)).startswith("TranscriptSession('user-1', ")


@pytest.mark.parametrize("items", [item(1), "Hello"])
def test_one_item_in_the_place_of_a_list_is_refused(session, items):
    """Else the names of its members, or its letters, would be items."""
    with pytest.raises(TypeError, match=r"items must be a list, not (dict|str): give \[item\]"):
        asyncio.run(session.add_items(items))
    with pytest.raises(TypeError, match=r"items\[1\]: Object of type object is not JSON serializable"):
        asyncio.run(session.add_items([item(1), object()]))
    assert asyncio.run(session.get_items()) == []


def test_sessions_with_other_options_take_turns_in_one_process(tmp_path):
    """Else the second would wait for a lock that its own process holds, and give up."""
    sessions = [
        TranscriptSession("user-1", tmp_path, durability=durability, lock_timeout_seconds=0)
        for durability in ("power-loss", "process-crash")
    ]

    async def scenario():
        for n in range(3):
            for session in sessions:
                await fill(session, [n])
        return await sessions[0].get_items()

    assert asyncio.run(scenario()) == [item(n) for n in (0, 0, 1, 1, 2, 2)]
    for session in sessions:
        session.close()


def test_no_more_are_open_than_agreed(tmp_path, monkeypatch):
    """The longest unused session is closed when there are too many, and opens again by itself."""
    monkeypatch.setattr(_conversations, "MOST_OPEN", 4)
    sessions = [TranscriptSession(f"user-{n}", tmp_path) for n in range(10)]

    async def scenario():
        for _ in range(2):
            for session in sessions:
                await fill(session, [1])
        assert [len(await session.get_items()) for session in sessions] == [2] * 10

    asyncio.run(scenario())
    open_files = [os.readlink(link) for link in map(str, Path("/proc/self/fd").iterdir()) if os.path.exists(link)]
    assert 1 <= sum(path.endswith("transcript.jsonl") and str(tmp_path) in path for path in open_files) <= 4
    for session in sessions:
        session.close()


def test_no_more_is_held_in_memory_than_agreed(tmp_path, monkeypatch):
    """Of each session at most the end is in memory, and of all that nobody uses no more than so many bytes; each opens again by itself."""
    monkeypatch.setattr(_conversations, "MOST_BYTES", 100_000)
    monkeypatch.setattr(_conversations, "CACHE_BYTES", 30_000)
    sessions = [TranscriptSession(f"user-{n}", tmp_path) for n in range(12)]
    long = [{"role": "user", "content": f"{n} {'x' * 1000}"} for n in range(200)]

    async def scenario():
        for session in sessions:
            await session.add_items(long)
            assert len(await session.get_items(5)) == 5
        assert [await session.get_items() for session in sessions] == [long] * 12

    asyncio.run(scenario())
    held = [each for each in _conversations._table.values() if each.key[0] == str(tmp_path)]
    held_bytes = [each.bytes for each in held]
    assert all(0 < each <= 30_000 for each in held_bytes)
    assert 0 < sum(held_bytes) <= 100_000 + 30_000  # the last one was in use when room was made
    for session in sessions:
        session.close()


def test_64_sessions_of_2_mb_hold_no_more_than_their_bound(tmp_path):
    """The memory that is really taken: what 64 long sessions hold after a turn each is what was agreed on for all together."""
    long = [{"role": "user", "content": f"{n} {'x' * 1000}"} for n in range(2000)]
    sessions = [TranscriptSession(f"user-{n}", tmp_path, durability="process-crash") for n in range(64)]

    async def turn(session):
        await session.add_items([item(1)])
        assert len(await session.get_items(50)) == 50

    asyncio.run(sessions[0].add_items(long))
    sessions[0].close()
    with ConversationStore(sessions[0].directory, read_only=True) as first:
        first.load()
        for session in sessions[1:]:
            with ConversationStore(session.directory) as made:
                name = os.path.basename(session.directory)
                made.initialize(id=name, provider="openai-agents", messages=first.get_messages(), features=["retract"])
    tracemalloc.start()
    try:
        for session in sessions:
            asyncio.run(turn(session))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * _conversations.MOST_BYTES
    for session in sessions:
        session.close()


@pytest.mark.parametrize("known", [True, False], ids=["known", "looked at"])
def test_a_retract_that_another_got_in_front_of(tmp_path, monkeypatch, known):
    """Another process adds an item between the look at the last one and the retract: that item is taken back, and none twice."""
    ours, theirs = (TranscriptSession("user-1", tmp_path, lock_timeout_seconds=wait) for wait in (10, 9))
    asyncio.run(fill(ours, [1, 2]))
    if not known:
        ours.close()  # the next pop has to look
    retract, others = ConversationStore.retract, [3, 4]

    def late(store, *arguments, **more):
        if others:
            with ConversationStore(store.directory, hold_lock=False) as other:
                other.load()
                other.append_message(item(others.pop(0)))
        return retract(store, *arguments, **more)

    monkeypatch.setattr(ConversationStore, "retract", late)
    assert [asyncio.run(ours.pop_item()) for _ in range(3)] == [item(4), item(3), item(2)]
    assert asyncio.run(theirs.get_items()) == [item(1)]
    assert [asyncio.run(one.pop_item()) for one in (theirs, ours)] == [item(1), None]
    for session in (ours, theirs):
        session.close()


def test_items_popped_one_by_one_are_looked_at_together(session, monkeypatch):
    """What the SDK pops after a failed attempt it added a moment ago: each pop is one turn, and what others did is seen."""
    looks = []
    get_messages = ConversationStore.get_messages

    def look(store, **arguments):
        looks.append(arguments)
        return get_messages(store, **arguments)

    monkeypatch.setattr(ConversationStore, "get_messages", look)

    async def scenario():
        await fill(session, [0], range(1, 20))
        assert [await session.pop_item() for _ in range(20)] == [item(n) for n in reversed(range(20))]
        assert await session.pop_item() is None

    asyncio.run(scenario())
    assert len(looks) == 3  # the last eight are known; then for 11 to 4, for 3 to 0, and for none


def test_one_that_is_being_closed_is_taken_again(tmp_path, monkeypatch):
    """The one too many was out of the table before it was closed: a call that needed it just then met the lock of this very process."""
    monkeypatch.setattr(_conversations, "MOST_OPEN", 4)
    sessions = [TranscriptSession(f"user-{n}", tmp_path, lock_timeout_seconds=0) for n in range(12)]

    async def scenario():
        for _ in range(5):
            await asyncio.gather(*(fill(session, [1]) for session in sessions))
        assert [len(await session.get_items()) for session in sessions] == [5] * 12

    asyncio.run(scenario())
    assert len([key for key in _conversations._table if key[0] == str(tmp_path)]) <= 4
    for session in sessions:
        session.close()


def test_a_cancelled_call_leaves_none_open_that_nobody_knows(tmp_path, monkeypatch):
    """It was closing others, one after the other: those behind were neither closed nor in the table."""
    sessions = [TranscriptSession(f"user-{n}", tmp_path, lock_timeout_seconds=0) for n in range(8)]

    async def scenario():
        await asyncio.gather(*(fill(session, [1]) for session in sessions))
        known = list(_conversations._table.values())  # else the end of the last reference closes them
        monkeypatch.setattr(_conversations, "MOST_OPEN", 2)
        cancelled = asyncio.ensure_future(sessions[0].get_items())
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        for session in sessions:
            await fill(session, [2])
        assert len(known) >= 8

    asyncio.run(scenario())
    for session in sessions:
        session.close()


def test_a_close_comes_before_or_after_a_call_of_another_thread(session):
    """A call may be several calls of the store, and a close between two of them was told to the caller as an error."""
    ended = []

    def use(number):
        async def scenario():
            for _ in range(12):
                await fill(session, [number])
                if await session.pop_item() is not None:
                    session.close()

        asyncio.run(scenario())
        ended.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 6


def test_a_conversation_that_is_in_another_folder(tmp_path):
    """A folder that was copied under another key's name is not taken for that key's session."""
    one, two = TranscriptSession("one", tmp_path), TranscriptSession("two", tmp_path)
    asyncio.run(fill(one, [1]))
    one.close()
    (folder,) = tmp_path.iterdir()
    folder.rename(two.directory)
    with pytest.raises(CorruptTranscriptError, match="belongs to"):
        asyncio.run(two.get_items())


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_a_secret_never_reaches_the_disk(tmp_path):
    """P22: what ``redact`` takes out stands in no file, and the agent gets back what is stored."""
    session = TranscriptSession("user-1", tmp_path, redact=SecretRedactor())
    asyncio.run(session.add_items([{"role": "user", "content": f"use {SECRET}"}]))
    assert asyncio.run(session.get_items()) == [{"role": "user", "content": "use [redacted:github-token]"}]
    session.close()
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_the_public_surface():
    """After a change that is meant, write what this finds into api.txt, and a line into CHANGELOG.md."""
    agreed = Path(__file__).with_name("api.txt").read_text().splitlines()
    assert surface([".integrations.openai_agents"]) == agreed

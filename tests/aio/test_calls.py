"""The async calls have the arguments, results and errors of the sync ones, and the package imports them only on use."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_type

import anyio
import pytest

from transcript_store import (
    AppendResult,
    ConversationLibrary,
    ConversationLockedError,
    ConversationMetadata,
    ConversationNotFoundError,
    ConversationNotLoadedError,
    ConversationStore,
    ConversationSummary,
    CorruptTranscriptError,
    InvalidMessageError,
    Record,
    Snapshot,
    TranscriptPosition,
    snapshot_of,
)
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore, _worker
from transcript_store.installation import install_command

USER, REPLY = {"role": "user", "content": "Where were we?"}, {"role": "assistant", "content": "Here."}

in_the_thread = {"frozen", "on_close", "group", "store", "redact"}
"""What belongs to the thread that it is called in, for as long as a block lasts: ``call()`` does it there. And what is made without
asking the disk: the library underneath has it."""


def public(door: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers_static(door) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("door", "awaited"),
    [(ConversationStore, AsyncConversationStore), (ConversationLibrary, AsyncConversationLibrary)],
)
def test_every_call_is_there_with_its_arguments_and_a_text(door, awaited):
    """A call that is added there, or takes an argument more, is missed here."""
    assert set(public(door)) - set(public(awaited)) == in_the_thread & set(public(door))
    assert set(public(awaited)) - set(public(door)) <= {"call", "of", "search"}
    for name, value in public(awaited).items():
        assert value.__doc__, name
        if name in public(door) and not isinstance(value, property):
            assert inspect.iscoroutinefunction(value) or name in ("iter_records", "iter_list"), name
            given = [(one.name, one.kind, one.default) for one in inspect.signature(value).parameters.values()]
            there = inspect.signature(public(door)[name]).parameters.values()
            assert given == [(one.name, one.kind, one.default) for one in there], name


@pytest.mark.anyio
async def test_a_conversation_from_beginning_to_end(tmp_path):
    """Each call does what the call of that name does."""
    async with AsyncConversationStore(tmp_path / "c", cache_bytes=0) as conversation:
        assert not await conversation.exists()
        assert await conversation.load_or_initialize(provider="claude", model="one", messages=[USER])
        first = await conversation.append_message(REPLY, extra={"tokens": 3})
        await conversation.append_event({"event": "paused"}, if_head=first.head)
        await conversation.append_messages([USER, REPLY], times=["2024-05-01T10:00:00Z", None])
        assert await conversation.get_messages(last=2) == [USER, REPLY]
        assert await conversation.position == (5, await conversation.head)
        assert await conversation.record_count == 5
        assert [record.seq async for record in conversation.iter_records(after_seq=1)] == [2, 3, 4, 5]
        assert (await conversation.get_records(last=4))[0].extra == {"tokens": 3}
        await conversation.update_metadata(model="two")
        await conversation.keep_records([1, 2], compaction_count=1)
        await conversation.replace_transcript([USER, REPLY], labels={"title": "Anew"}, features=["retract"])
        await conversation.retract()
        assert (await conversation.get_messages(), await conversation.features) == ([USER], ("retract",))
        assert [generation.number for generation in await conversation.generations()] == [0, 1, 2]
        assert len(await conversation.get_records(generation=0)) == 5
        await conversation.delete_generation(0)
        assert await conversation.purge_quarantine() == 0
        await conversation.restore([USER, REPLY], provider="claude", restored_from={"backup": "of Monday"})
        metadata = await conversation.get_metadata()
        assert (metadata.model, metadata.compaction_count, metadata.labels) == ("two", 1, {"title": "Anew"})
        assert (await conversation.state()).metadata == metadata
        assert (await conversation.recovery, await conversation.torn_tail) == (None, None)
        assert await conversation.is_fully_verified
        assert (await conversation.refresh()).records_added == 0
        assert (await conversation.call(snapshot_of)).message_count == 2
        assert await conversation.call(lambda store: (store.append_event({}).seq, store.record_count)) == (3, 3)
        assert repr(conversation) == f"AsyncConversationStore({str(tmp_path / 'c')!r})"
        assert conversation.max_line_bytes == 64 << 20
    with pytest.raises(ConversationNotLoadedError):
        await conversation.get_messages()
    await conversation.load(verify="tail")
    assert conversation.id == metadata.id
    await conversation.close()


@pytest.mark.anyio
async def test_messages_keep_the_times_that_they_are_given(tmp_path):
    """As ``append_messages`` keeps them; None is now."""
    times = [f"2024-05-01T10:0{n}:00.000000Z" for n in range(3)]
    async with AsyncConversationStore(tmp_path / "c") as conversation:
        await conversation.initialize(messages=[USER], times=times[:1])
        await conversation.append_messages([REPLY, USER, REPLY], times=[*times[1:], None])
        assert [record.at for record in await conversation.get_records(last=4)][:3] == times
        assert (await conversation.get_records(last=1))[0].at > times[2]


@pytest.mark.anyio
async def test_a_library_of_conversations(tmp_path):
    """Each call does what the call of that name does; forks go into libraries of either kind."""
    library = AsyncConversationLibrary(tmp_path / "library")
    assert library.directory == str(tmp_path / "library")
    assert await library.list() == []
    async with await library.create(
        messages=[USER], labels={"title": "One"}, durability="process-crash"
    ) as conversation:
        await conversation.append_message(REPLY)
        original = conversation.id
    fork = await library.fork(original, through_seq=1)
    other = AsyncConversationLibrary(tmp_path / "other")
    copied = [
        await library.fork(original, into=other),
        await library.fork_from(conversation.directory, into=ConversationLibrary(other.directory)),
        await other.fork_from(conversation.directory),
    ]
    assert {summary.id for summary in await library.list()} == {original, fork}
    assert {summary.id for summary in await other.list(last_extra=True)} == set(copied)
    async with await library.open(fork, read_only=True) as conversation:
        assert await conversation.get_messages() == [USER]
    await library.delete(fork)
    await library.delete_folder(original)
    assert await library.list() == []

    def create_two(library: ConversationLibrary) -> None:
        with library.group() as group:
            for _ in range(2):
                group.add(messages=[USER])

    await library.call(create_two)
    assert len(await library.list()) == 2


@pytest.mark.anyio
async def test_errors_come_through_as_they_are(tmp_path):
    """The same type, facts and way out; the traceback leads from the caller's line into the store."""
    conversation, store = AsyncConversationStore(tmp_path / "c"), ConversationStore(tmp_path / "c")

    async def both(awaited: Callable[[AsyncConversationStore], Any], call: Callable[[ConversationStore], Any]) -> None:
        with pytest.raises(Exception) as expected:
            call(store)
        with pytest.raises(type(expected.value)) as found:
            await awaited(conversation)
        assert str(found.value) == str(expected.value)
        names = [frame.name for frame in traceback.extract_tb(found.value.__traceback__)]
        assert names[0] == "both"
        errors.append(type(found.value))

    errors: list[type] = []
    await both(lambda c: c.load(), lambda c: c.load())
    await both(lambda c: c.append_message(USER), lambda c: c.append_message(USER))
    await both(lambda c: c.append_message({"n": {1}}), lambda c: c.append_message({"n": {1}}))
    await both(lambda c: c.append_messages([USER], extras=[]), lambda c: c.append_messages([USER], extras=[]))
    await both(lambda c: c.append_messages([USER], times=[3]), lambda c: c.append_messages([USER], times=[3]))  # type: ignore[list-item]
    await both(lambda c: c.append_messages(7), lambda c: c.append_messages(7))  # type: ignore[arg-type]
    await both(lambda c: c.append_event([]), lambda c: c.append_event([]))  # type: ignore[arg-type]
    await both(lambda c: c.append_message(USER, if_head=7), lambda c: c.append_message(USER, if_head=7))  # type: ignore[arg-type]
    await both(lambda c: c.load(verify="no"), lambda c: c.load(verify="no"))  # type: ignore[arg-type]
    with ConversationStore(tmp_path / "c") as holder:
        holder.initialize()
        await both(lambda c: c.load(), lambda c: c.load())
    assert errors[:3] == [ConversationNotFoundError, ConversationNotLoadedError, InvalidMessageError]
    assert errors[-1] is ConversationLockedError
    with pytest.raises(ValueError, match="after_seq"):
        conversation.iter_records(after_seq=-1)
    with pytest.raises(ValueError, match="durability"):
        AsyncConversationStore(tmp_path / "c", durability="none")  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_records_are_given_up_to_the_damage(tmp_path):
    """As the iterator underneath gives them, whatever is fetched together."""
    async with AsyncConversationStore(tmp_path / "c", cache_bytes=0) as conversation:
        await conversation.initialize(messages=[{"n": n, "text": "x" * 30_000} for n in range(40)])
        transcript = tmp_path / "c" / "transcript.jsonl"
        lines = transcript.read_bytes().splitlines(keepends=True)
        transcript.write_bytes(b"".join([*lines[:21], lines[21].replace(b"x", b"y", 1), *lines[22:]]))

        def count(store: ConversationStore) -> int:
            seen = 0
            with pytest.raises(CorruptTranscriptError):
                for _ in store.iter_records():
                    seen += 1
            return seen

        expected, seen = await conversation.call(count), 0
        with pytest.raises(CorruptTranscriptError):
            async for _ in conversation.iter_records():
                seen += 1
    assert seen == expected


def in_a_process_of_its_own(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_the_package_imports_no_anyio():
    """The package and its doors import neither anyio nor what it needs."""
    doors = "conversation, errors, library, maintenance, snapshots, messages"
    program = f"import sys, transcript_store\nfrom transcript_store import {doors}\nprint({{'anyio', 'trio', 'asyncio'}} & set(sys.modules))"
    assert in_a_process_of_its_own(program) == "set()\n"


def test_without_its_extra_it_says_what_to_install():
    """``MissingExtraError``, as for every other extra."""
    program = """
import sys
sys.modules["anyio"] = None
try:
    import transcript_store.aio
except ImportError as error:
    print(type(error).__name__, error)
"""
    said = in_a_process_of_its_own(program)
    assert said.startswith("MissingExtraError")
    assert install_command("aio") in said


def test_a_store_that_was_not_closed_is_told(tmp_path, monkeypatch):
    """The lock is released, and a ResourceWarning says so: as of the store underneath.

    Also while the thread has told the task and done nothing since: it once kept the store for a moment longer.
    """
    may_go_on = threading.Event()

    def wake_and_stand_still() -> _worker.Wake:
        wake = in_the_loop()
        return lambda function: (wake(function), may_go_on.wait(60))

    in_the_loop = _worker._wake  # nobody else stands between the thread and the task
    monkeypatch.setattr(_worker, "_wake", wake_and_stand_still)

    async def forget() -> None:
        await AsyncConversationStore(tmp_path / "c").initialize()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        anyio.run(forget)
        gc.collect()
        may_go_on.set()
    assert "was not closed" in str([one.message for one in caught if one.category is ResourceWarning])
    with ConversationStore(tmp_path / "c") as store:
        store.load()


@pytest.mark.anyio
async def test_an_async_function_is_not_called_in_the_thread(tmp_path):
    """Nothing awaits it there: it would not be done, and Python would say so when nobody looks any more."""
    done: list[object] = []

    async def append(door: object) -> None:
        done.append(door)

    async with AsyncConversationStore(tmp_path / "c") as conversation:
        await conversation.initialize()
        for call in (conversation.call, AsyncConversationLibrary(tmp_path).call):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with pytest.raises(TypeError, match="must not be async: nothing awaits it there"):
                    await call(append)  # type: ignore[unused-coroutine]
    assert not done


if TYPE_CHECKING:

    async def typed(conversation: AsyncConversationStore, library: AsyncConversationLibrary) -> None:
        """A type checker sees the arguments and the results of each call; what does not fit is an error (or the ignore would be one)."""
        assert_type(await conversation.get_messages(last=3), list[dict[str, Any]])
        assert_type(await conversation.get_metadata(at_start=True), ConversationMetadata)
        assert_type(await conversation.load_or_initialize(provider="claude", messages=[USER]), bool)
        assert_type(await conversation.append_message(USER), AppendResult)
        assert_type(await conversation.append_messages([USER, None], extras=[None, {}]), tuple[AppendResult, ...])
        assert_type(await conversation.position, TranscriptPosition)
        assert_type([one async for one in conversation.iter_records()], list[Record])
        assert_type(await conversation.call(snapshot_of), Snapshot)
        assert_type(await library.list(), list[ConversationSummary])
        assert_type(await library.create(durability="process-crash"), AsyncConversationStore)
        await conversation.get_messages(lst=3)  # type: ignore[call-arg]
        await conversation.initialize(provider=3)  # type: ignore[arg-type]
        await conversation.initialize(nobody=3)  # type: ignore[call-arg]
        await conversation.load(verify="most")  # type: ignore[arg-type]
        await library.open("id", durability="none")  # type: ignore[arg-type]
        conversation.get_messages()[0]  # type: ignore[index]

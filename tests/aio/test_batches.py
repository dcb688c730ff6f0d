"""Appends of many tasks at the same time share one write and one sync; otherwise each looks like a separate call.

A sync waits at a gate until as many tasks stand in line as a test wants, so what is stored together is no accident.
"""

from __future__ import annotations

import traceback

import anyio
import anyio.to_thread
import pytest

from tests.aio.helpers import Behind
from tests.kit.gate import LockGate
from transcript_store import (
    ConversationChangedError,
    ConversationLockedError,
    ConversationStore,
    InvalidMessageError,
    PoisonedError,
    StorageError,
)
from transcript_store.aio import AsyncConversationStore

pytestmark = pytest.mark.anyio


async def test_32_tasks_that_append_share_a_sync(tmp_path):
    """P1, P22: one sync for the first, one for the 31 that came meanwhile; ``seq`` is the order in which they called."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        for n in range(31):
            behind.append(n)
    assert behind.gate.syncs - behind.syncs_before == 2
    assert behind.stored() == behind.called
    assert [behind.outcomes[name][0].seq for name in behind.called] == list(range(1, 33))


async def test_messages_of_one_call_stay_together(tmp_path):
    """P3, P22: each caller's messages stand directly behind one another, and each gets the results of its own."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        for n in range(5):
            behind.append(*[f"{n}.{k}" for k in range(n)] or [f"{n}.none"])
    assert behind.stored() == behind.called
    assert behind.gate.syncs - behind.syncs_before == 2
    for n in range(2, 5):
        results = behind.outcomes[f"{n}.0"]
        assert [behind.called[result.seq - 1] for result in results] == [f"{n}.{k}" for k in range(n)]
        assert [result.previous_head for result in results[1:]] == [result.head for result in results[:-1]]


async def test_extras_times_and_events_of_tasks_stay_their_own(tmp_path):
    """A batch of many calls is what the calls alone would have stored."""
    behind = Behind(tmp_path / "c")
    at = "2024-05-01T10:00:00.000000Z"
    async with behind.begin():
        behind.append("a", extras=[{"of": "a"}])
        await anyio.wait_all_tasks_blocked()
        behind.append("b", "event", messages=[{"n": "b"}, None], extras=[None, {"an": "event"}])
        await anyio.wait_all_tasks_blocked()
        behind.append("c", times=[at])
        behind.append("none", messages=[])
    assert behind.outcomes["none"] == ()
    with ConversationStore(tmp_path / "c", read_only=True) as fresh:
        fresh.load()
        records = fresh.get_records()
    assert [(record.message, record.extra) for record in records] == [
        ({"n": "first"}, None),
        ({"n": "a"}, {"of": "a"}),
        ({"n": "b"}, None),
        (None, {"an": "event"}),
        ({"n": "c"}, None),
    ]
    assert records[4].at == records[3].at  # its own time lies before that


async def test_a_refused_message_does_not_refuse_the_others(tmp_path):
    """P7, P15: what JSON cannot carry is refused before it is in line; what the disk has no room for, alone."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        behind.gate.refuse_longer_than = 3000
        behind.append("one")
        behind.append("no json", messages=[{"n": {1}}])
        behind.append("long", messages=[{"n": "x" * 4000}])
        behind.append("two")
    assert behind.stored() == [name for name in behind.called if name in ("first", "one", "two")]
    assert isinstance(behind.outcomes["no json"], InvalidMessageError)
    assert behind.outcomes["no json"].member == 'messages[0]["n"]'
    assert isinstance(behind.outcomes["long"], StorageError)
    assert "Nothing of it was stored" in str(behind.outcomes["long"])


async def test_a_lock_that_is_not_got_is_waited_for_once_by_all_that_wait(tmp_path):
    """A lock_timeout_seconds is as long for many tasks as for one. The incident: when a batch had waited in vain, each of its calls
    waited again by itself, so that twenty tasks were told after twenty times that long.
    """
    gate, refused = LockGate(), list[ConversationLockedError]()
    store = AsyncConversationStore(tmp_path / "c", hold_lock=False, lock_timeout_seconds=1, file_system=gate)

    async def append(n: int) -> None:
        with pytest.raises(ConversationLockedError) as raised:
            await store.append_message({"n": n})
        refused.append(raised.value)

    async with store:
        await store.initialize()
        with ConversationStore(tmp_path / "c") as holder:
            holder.load()
            gate.armed = True
            async with anyio.create_task_group() as tasks:
                for n in range(20):
                    tasks.start_soon(append, n)
                await anyio.wait_all_tasks_blocked()
                gate.open.set()
            assert len({id(error) for error in refused}) == 20, "each has an error of its own"
            assert gate.waited_seconds < 3, "once for the first, once for all others"
            assert holder.get_messages() == []
        assert (await store.append_message({"n": "goes on"})).seq == 1


async def test_a_failed_sync_is_told_to_all_whose_messages_it_was(tmp_path):
    """P6: each gets that error, raised where it waits, and not one of a store that is poisoned; whoever comes then gets that."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        behind.gate.refuse_sync = True
        for n in range(3):
            behind.append(n)
    errors = [behind.outcomes[n] for n in range(3)]
    assert [str(error) for error in errors] == [str(errors[0])] * 3
    assert "Whether it is on the disk is unknown" in str(errors[0])
    assert len({id(error) for error in errors}) == 3
    for error in errors:
        assert type(error) is StorageError
        assert isinstance(error.__cause__, OSError)
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert frames[0] == "call", "the caller's own frame comes first"
        assert "store" in frames, "and the store's stands behind"
        assert frames.count("call") == 1, "nobody else's frames are among them"


async def test_after_a_failed_sync_a_load_is_the_way_on(tmp_path):
    """P6: as of the store underneath."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        behind.gate.refuse_sync = True
        behind.append("lost?")
        await anyio.wait_all_tasks_blocked()
        behind.gate.open.set()
        while "lost?" not in behind.outcomes:
            await anyio.sleep(0)
        with pytest.raises(PoisonedError):
            await behind.store.append_message({"n": "refused"})
        behind.gate.refuse_sync = False
        await behind.store.load()
        await behind.store.append_message({"n": "goes on"})
    assert behind.stored()[-1] == "goes on"


async def test_of_tasks_that_ask_for_one_head_the_first_appends(tmp_path):
    """``if_head``: the others get an error, and nothing of theirs is stored."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        behind.gate.open.set()
        head = await behind.store.head
        for n in range(5):
            behind.append(n, if_head=head)
    refused = [n for n in range(5) if isinstance(behind.outcomes[n], ConversationChangedError)]
    assert len(refused) == 4
    assert len(behind.stored()) == 2


async def test_what_is_stored_together_is_bounded(tmp_path):
    """Two calls of 5 MB are two batches: memory does not grow with the number of tasks, nor does the time until the first is told."""
    behind = Behind(tmp_path / "c")
    async with behind.begin():
        for n in range(2):
            behind.append(n, messages=[{"n": n, "text": "x" * (5 << 20)}])
    assert behind.gate.syncs - behind.syncs_before == 3
    assert sorted(behind.stored()[1:]) == [0, 1]


async def test_a_message_is_copied_when_it_is_given(tmp_path):
    """Whoever changes it while the call waits changes nothing that is stored."""
    behind = Behind(tmp_path / "c")
    message = {"n": "as given"}
    async with behind.begin():
        behind.append("given", messages=[message])
        await anyio.wait_all_tasks_blocked()
        message["n"] = "changed"
    assert behind.stored() == ["first", "as given"]


async def test_calls_of_all_kinds_are_made_in_the_order_of_the_callers(tmp_path):
    """P22: a read sees what was appended by calls before it, and a replace neither loses nor repeats what waits."""
    behind = Behind(tmp_path / "c")
    seen: dict[str, list[object]] = {}  # by caller: an event loop may wake both readers in either order

    async def look(when: str) -> None:
        seen[when] = [message["n"] for message in await behind.store.get_messages()]

    async def compact() -> None:
        await behind.store.replace_transcript([{"n": "compacted"}], compaction_count=1)

    async with behind.begin():
        behind.append("a")
        await anyio.wait_all_tasks_blocked()
        behind.tasks.start_soon(look, "before")
        await anyio.wait_all_tasks_blocked()
        behind.tasks.start_soon(compact)
        await anyio.wait_all_tasks_blocked()
        behind.append("b")
        await anyio.wait_all_tasks_blocked()
        behind.tasks.start_soon(look, "after")
    assert seen == {"before": ["first", "a"], "after": ["compacted", "b"]}
    assert behind.stored() == ["compacted", "b"]


async def test_one_store_for_threads_and_tasks(tmp_path):
    """P22: ``AsyncConversationStore.of`` a store that threads use: one order for all."""
    with ConversationStore(tmp_path / "c") as store:
        store.initialize()
        conversation = AsyncConversationStore.of(store)

        async def in_a_thread(n: int) -> None:
            await anyio.to_thread.run_sync(store.append_message, {"n": n})

        async with anyio.create_task_group() as tasks:
            for n in range(20):
                tasks.start_soon(conversation.append_message, {"n": n})
                tasks.start_soon(in_a_thread, n + 20)
        assert sorted(message["n"] for message in await conversation.get_messages()) == list(range(40))
        await conversation.close()

"""Turns at one conversation (``hold_lock=False``): several processes write, a call at a time.

What is left by one that is stopped at any call is tried in tests/crash/test_shared_writer.py. Here are whole processes, threads, Ctrl-C,
and what a user meets. Children are forked and talk over pipes; what is random is seeded.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.kit.children import Child, check_storm, storm
from tests.kit.interruption import every_line
from transcript_store import (
    ConversationChangedError,
    ConversationLibrary,
    ConversationLockedError,
    ConversationNotLoadedError,
    ConversationStore,
    verify,
)
from transcript_store._conversation.shared_writer import SharedWriter
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.aio import AsyncConversationLibrary, AsyncConversationStore


def conversation(directory: Path, **contents: Any) -> Path:
    with ConversationStore(directory) as store:
        store.initialize(**contents)
    return directory


def numbers_of(directory: Path) -> dict[int, list[int]]:
    """Each writer's numbers, in the order in which they stand in the live generation."""
    assert verify(directory).is_intact
    found: dict[int, list[int]] = {}
    with ConversationStore(directory) as store:
        store.load()
        for message in store.get_messages():
            found.setdefault(message["w"], []).append(message["n"])
    return found


# ---- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kills", [3, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
def test_a_storm_of_eight_that_take_turns(scratch, durability, kills):
    """P1, P3, P4, P11: eight processes append, read, change, keep and close as fast as they can, and are killed at random: what was
    acknowledged is there once, each writer's own in order, and each sees its own at once.
    """
    seed = 21
    print(f"seed {seed}")
    randomly = random.Random(seed)
    directory = conversation(scratch / "c")

    def writer(number: int) -> Callable[[Callable[[object], None]], None]:
        def work(say: Callable[[object], None]) -> None:
            own = random.Random(seed * 1000 + number)
            store = ConversationStore(
                directory, durability=durability, hold_lock=False, lock_timeout_seconds=120, cache_bytes=20_000
            )
            store.load(verify=own.choice(["all", "tail"]))
            n = 0
            while True:
                chance = own.random()
                if chance < 0.5:
                    store.append_message({"w": number, "n": n, "pad": "x" * own.choice([10, 3000])})
                    n += 1
                elif chance < 0.8:
                    store.append_messages([{"w": number, "n": n}, {"w": number, "n": n + 1}])
                    n += 2
                elif chance < 0.9:
                    mine = [message["n"] for message in store.get_messages() if message["w"] == number]
                    assert mine == [*range(n)], f"writer {number} does not see its own"
                elif chance < 0.94:
                    store.update_metadata(labels={f"{number}": f"{n}"})
                elif chance < 0.97:
                    position = store.position
                    with suppress(ConversationChangedError):
                        store.keep_records(range(1, position.seq + 1), if_head=position.head)
                else:
                    store.close()
                    store.load(verify="tail")
                say(n)

        return work

    acknowledged = storm(writer, kills, randomly)
    found = numbers_of(directory)
    check_storm(acknowledged, found, kills)
    print(f"{sum(acknowledged.values())} messages, {verify(directory).generation} replaces")


def test_everybody_has_a_turn(scratch):
    """P11: of three that take turn after turn without a pause each comes to its turns."""
    directory = conversation(scratch / "c")

    def work(number: int) -> Callable[[Callable[[object], None]], None]:
        def append(say: Callable[[object], None]) -> None:
            with ConversationStore(directory, hold_lock=False, lock_timeout_seconds=120) as store:
                store.load(verify="tail")
                for n in range(60):
                    store.append_message({"w": number, "n": n})

        return append

    for child in [Child(work(number)) for number in range(3)]:
        child.end()
    assert numbers_of(directory) == {number: list(range(60)) for number in range(3)}


def test_a_call_waits_ten_seconds_for_a_held_lock(scratch):
    """P11: a turn waits for ten seconds, or as long as was asked for, and the error names the holder; then it goes on behind it."""

    class Patient(PosixFileSystem):
        waited_seconds = 0.0

        def wait(self, seconds: float) -> None:  # type: ignore[override]
            self.waited_seconds += seconds

    directory = conversation(scratch / "c")
    files = Patient()
    with ConversationStore(directory, hold_lock=False, file_system=files) as store:
        store.load()
        with ConversationStore(directory) as holder:
            holder.load()
            with pytest.raises(ConversationLockedError) as caught:
                store.append_message({"n": 1})
            assert caught.value.holder_pid == os.getpid()
            assert 9.9 < files.waited_seconds < 10.1
            holder.append_message({"n": 2})
        assert store.get_messages() == [{"n": 2}]
        store.append_message({"n": 3})
        with ConversationStore(directory) as holder:
            holder.load()  # nobody has a turn now
            files.waited_seconds = 0
            with pytest.raises(ConversationLockedError):
                ConversationStore(directory, file_system=files).load()
            assert files.waited_seconds == 0, "who will hold the lock waits for nobody, unless he is asked to"
            assert holder.get_messages() == [{"n": 2}, {"n": 3}]


def test_a_forked_child_opens_it_anew_and_takes_turns_with_its_parent(scratch):
    """P11: what the parent loaded is not the child's; a store of the child's own takes turns with the parent's."""
    directory = conversation(scratch / "c")
    with ConversationStore(directory, hold_lock=False) as parent:
        parent.load()
        parent.append_message({"w": 0, "n": 0})

        def use(say: Callable[[object], None]) -> None:
            with pytest.raises(ConversationNotLoadedError):
                parent.append_message({"w": 1, "n": 0})
            with ConversationStore(directory, hold_lock=False) as own:
                own.load()
                own.append_message({"w": 1, "n": 0})

        Child(use).end()
        parent.append_message({"w": 0, "n": 1})
        assert [message["w"] for message in parent.get_messages()] == [0, 1, 0]


# ---- one process -----------------------------------------------------------------------------------------------------


def test_threads_of_two_stores(scratch):
    """P22: threads of one store share turns, those of two take them; every call is there once."""
    directory = conversation(scratch / "c")
    stores = [ConversationStore(directory, hold_lock=False, lock_timeout_seconds=120) for _ in range(2)]
    for store in stores:
        store.load()

    def work(number: int) -> None:
        for n in range(40):
            stores[number % 2].append_message({"w": number, "n": n})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert numbers_of(directory) == {number: list(range(40)) for number in range(6)}


OPERATIONS: dict[str, Callable[[ConversationStore], object]] = {
    "append_message": lambda store: store.append_message({"n": 2}),
    "replace_transcript": lambda store: store.replace_transcript([{"n": 3}], model="new"),
    "update_metadata": lambda store: store.update_metadata(model="new"),
    "get_messages": lambda store: store.get_messages(),
    "close": lambda store: store.close(),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("behind_another", [False, True], ids=["as it was left", "changed by another"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_interrupted_at_every_line(scratch, operation, behind_another, step):
    """P21: after Ctrl-C the lock is free at once; the other store sees the call done or not, writes, and the first goes on."""

    def prepare(directory: Path) -> tuple[ConversationStore, ConversationStore]:
        first, second = (ConversationStore(directory / "c", hold_lock=False, lock_timeout_seconds=0) for _ in range(2))
        first.initialize(model="old", messages=[{"n": 1}])
        second.load()
        if behind_another:
            second.update_metadata(labels={"title": "by the second"})
        return first, second

    runs = 0
    for (first, second), directory, where, _ in every_line(
        scratch, prepare, lambda both: OPERATIONS[operation](both[0]), step
    ):
        messages, model = second.get_messages(), second.get_metadata().model
        assert messages in ([{"n": 1}], [{"n": 1}, {"n": 2}], [{"n": 3}]), where
        assert (messages == [{"n": 3}]) <= (model == "new"), where
        second.append_message({"n": 4})
        if operation != "close":
            first.append_message({"n": 5})
            assert first.get_messages() == second.get_messages() == [*messages, {"n": 4}, {"n": 5}], where
            assert (first.get_metadata().model, second.get_metadata().model) == (model, model), where
        labels = {"title": "by the second"} if behind_another else {}
        assert second.get_metadata().labels == labels, where
        first.close()
        second.close()
        assert verify(directory / "c").is_intact, where
        runs += 1
    assert runs > 40 / step


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])
def test_interrupted_again_while_the_turn_ends(scratch, monkeypatch, step):
    """P21: Ctrl-C within an append, and again at each end of its turn: what the store shows then is what the file holds."""
    shown: list[int] = []
    end_call = SharedWriter.end_call

    def press_again(writer: SharedWriter) -> None:
        if sys.exc_info()[0] is KeyboardInterrupt:
            raise KeyboardInterrupt
        end_call(writer)

    def prepare(directory: Path) -> ConversationStore:
        store = ConversationStore(directory, hold_lock=False)
        store.initialize(messages=[{"n": 1}])
        return store

    def append(store: ConversationStore) -> None:
        with monkeypatch.context() as patched:
            # Only there is an end of a turn interrupted by a Ctrl-C of its own, as often as there is one.
            patched.setattr(SharedWriter, "end_call", press_again)
            store.append_message({"n": 2})

    for store, directory, where, _ in every_line(scratch, prepare, append, step):
        messages = store.get_messages()
        with ConversationStore(directory, read_only=True) as reader:
            reader.load()
            assert reader.get_messages() == messages, where
        store.append_message({"n": 3})
        assert store.get_messages() == [*messages, {"n": 3}], where
        store.close()
        assert verify(directory).is_intact, where
        shown.append(len(messages))
    assert shown.count(1) > 40 / step
    assert shown.count(2) > 40 / step


def test_reading_continues_piece_by_piece_while_others_write(scratch):
    """P12: iter_records() ends where the transcript ended when it began; after another's replace it says so."""
    directory = conversation(scratch / "c", messages=[{"w": 0, "n": n, "pad": "x" * 1000} for n in range(600)])
    with ConversationStore(directory, hold_lock=False, cache_bytes=0) as store:
        store.load()
        with ConversationStore(directory, hold_lock=False) as other:
            other.load()
            records = store.iter_records()
            next(records)
            other.append_message({"w": 1, "n": 0})
            assert len([next(records) for _ in range(400)]) == 400
            other.replace_transcript([])
            with pytest.raises(ConversationChangedError):
                list(records)
            with store.frozen() as held:
                assert held.position.seq == 0
                with pytest.raises(ConversationLockedError):  # the block is one turn
                    ConversationStore(directory, hold_lock=False, lock_timeout_seconds=0).load()


@pytest.mark.parametrize("option", ["hold_lock", "read_only"])
def test_only_a_bool_says_whether_the_lock_is_held(scratch, option):
    """``"no"`` would count as True."""
    for other in ("no", 0, None):
        with pytest.raises(TypeError, match=f"{option} must be a bool"):
            ConversationStore(scratch, **{option: other})  # type: ignore[arg-type]


def test_a_locked_error_mentions_shared_writers(scratch):
    """And whoever calls a store within its own block is told of the block."""
    directory = conversation(scratch / "c")
    with ConversationStore(directory) as holder:
        holder.load()
        with pytest.raises(ConversationLockedError, match="open both with hold_lock=False"):
            ConversationStore(directory).load()
        with holder.frozen(), pytest.raises(RuntimeError, match=r"frozen\(\) block"):
            holder.append_message({"n": 1})


def test_the_doors_take_it(scratch):
    """A library opens and creates such stores, and so does aio."""
    library = ConversationLibrary(scratch)
    with (
        library.create(messages=[{"n": 1}], hold_lock=False) as first,
        library.open(first.id, hold_lock=False) as second,
    ):
        second.append_message({"n": 2})
        assert first.get_messages() == [{"n": 1}, {"n": 2}]

        async def tasks() -> None:
            async with (
                AsyncConversationStore(first.directory, hold_lock=False) as third,
                await AsyncConversationLibrary(scratch).open(second.id, hold_lock=False) as fourth,
            ):
                await third.load()
                await third.append_message({"n": 3})
                await fourth.append_message({"n": 4})
                assert await third.get_messages() == [{"n": n} for n in (1, 2, 3, 4)]

        anyio.run(tasks)
        assert first.get_messages() == [{"n": n} for n in (1, 2, 3, 4)]


def test_a_planted_hard_link_is_not_written_to(scratch):
    """P16: who links the lock to a file of somebody else's changes nothing in it; each turn loads."""
    directory = conversation(scratch / "c")
    other = scratch / "precious"
    with ConversationStore(directory, hold_lock=False) as store:
        store.load()
        (directory / "lock").unlink()
        other.write_bytes(b"name\nprecious")
        os.link(other, directory / "lock")
        store.append_message({"n": 1})
        assert store.get_messages() == [{"n": 1}]
    assert other.read_bytes() == b"name\nprecious"


@pytest.mark.parametrize("hold_lock", [False, True])
def test_what_was_left_goes_also_while_a_backup_of_links_is_there(scratch, hold_lock):
    """U1: of a file with two links nothing was removed. The backup went, what had been left stood there again, and whoever had left it
    went on with metadata that another process had changed meanwhile: that change was lost.
    """
    directory = conversation(scratch / "c", labels={"by": "nobody"})
    with ConversationStore(directory, hold_lock=False) as first:
        first.load()
        first.append_message({"n": 1})
        os.link(directory / "lock", scratch / "backup")  # cp -al
        with ConversationStore(directory, hold_lock=hold_lock) as second:
            second.load()
            second.update_metadata(labels={"by": "second"})
        (scratch / "backup").unlink()
        first.update_metadata(model="m")
        assert (first.get_metadata().labels, first.get_metadata().model) == ({"by": "second"}, "m")


@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
def test_a_close_notes_how_far_the_transcript_is_synced(scratch, durability):
    """P10: what is behind the mark may be lost without a trace; behind a close that nobody wrote after there is nothing."""
    directory = conversation(scratch / "c")
    first, second = (ConversationStore(directory, durability=durability, hold_lock=False) for _ in range(2))
    for store in (first, second):
        store.load()
        store.append_message({"n": 1})
    first.close()
    assert mark_of(directory) < 2, "the second wrote since: it is the second's to note"
    assert second.append_message({"n": 2}).seq == 3
    second.close()
    assert mark_of(directory) == 3


def mark_of(directory: Path) -> int:
    seq: int = json.loads((directory / "metadata.json").read_bytes())["mark"]["seq"]
    return seq


def test_close_does_not_wait_and_leaves_the_mark_to_who_is_at_work(scratch):
    """A close while another one writes does not wait for it (it would wait for a day); no acknowledged message is missing."""
    directory = conversation(scratch / "c")
    store = ConversationStore(directory, durability="process-crash", hold_lock=False, lock_timeout_seconds=86_400)
    store.load()
    store.append_message({"n": 1})
    with ConversationStore(directory) as holder:
        holder.load()
        store.close()
        assert holder.append_message({"n": 2}).seq == 2
    with ConversationStore(directory, hold_lock=False) as store:
        store.load()
        assert store.get_messages() == [{"n": 1}, {"n": 2}]

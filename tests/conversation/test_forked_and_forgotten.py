"""A store in a forked child, and a store that was never closed.

The incident: what a fork begins anew could be left out, and no quick test noticed.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.children import Child, Gate
from tests.kit.meanwhile import (
    SAID,
    a_conversation,
    opened,
)
from transcript_store import (
    ConversationNotLoadedError,
    ConversationStore,
)
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.hints import Hint


def test_a_forked_child_in_the_middle_of_a_call_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """P11: what is open is the parent's, and the mutex is held by a thread that the child has not: the child is told to load."""
    disk = a_conversation()
    store = opened(disk)
    parent = disk.process_id()
    with store.frozen():
        monkeypatch.setattr(disk, "process_id", lambda: parent + 1)
        before = disk.tree()
        for call in (lambda: store.append_message(SAID[0]), store.get_messages):
            with pytest.raises(ConversationNotLoadedError, match=f"loaded by process {parent}") as told:
                call()
            assert told.value.hint is Hint.LOAD_HERE
        assert disk.tree() == before


def test_a_forked_child_joins_no_group_of_its_parent(scratch: Path) -> None:
    """P11, P22: a thread of the parent appends, another waits behind it; the child has neither, and waits for neither."""
    arrived, go_on = threading.Event(), threading.Event()

    class Slow(PosixFileSystem):
        def sync_data(self, handle: int) -> None:
            if threading.current_thread() is threads[0]:
                arrived.set()
                go_on.wait(30)
            os.fsync(handle)

    store = ConversationStore(scratch / "c", file_system=Slow())
    threads = [threading.Thread(target=store.append_message, args=({"n": n},)) for n in range(2)]
    store.initialize()
    threads[0].start()
    assert arrived.wait(30)
    group = store._guard.group_commit.open  # who waits in it is nowhere else to be seen
    threads[1].start()
    while not group.members:
        time.sleep(0.0005)
    gate = Gate()

    def use(say: Callable[[object], None]) -> None:
        gate.wait()
        store.load()
        say(store.append_message({"n": "child"}).seq)
        store.close()

    child = Child(use)
    go_on.set()
    for thread in threads:
        thread.join(30)
    store.close()
    gate.open()
    assert child.wait_for(1, seconds=5) == ["3"]
    child.end()


@pytest.mark.parametrize("is_closed", [True, False])
def test_only_an_unclosed_store_warns(is_closed: bool) -> None:
    """A store that is collected warns if it was open; then its lock is free as well."""
    gc.collect()  # what other tests left open
    disk = a_conversation()
    store = opened(disk)
    if is_closed:
        store.close()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del store
        gc.collect()
    assert [warning.category for warning in said] == ([] if is_closed else [ResourceWarning])
    opened(disk.another_process()).close()

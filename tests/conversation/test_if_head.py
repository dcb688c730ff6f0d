"""An append with ``if_head`` is stored only directly after the records that the caller has read."""

from __future__ import annotations

import threading

import pytest

from tests.conversation.helpers import ONE, THREE, TWO
from tests.kit.trees import tree
from transcript_store import ConversationChangedError, ConversationStore, ReadOnlyError
from transcript_store._os.filesystem import PosixFileSystem
from transcript_store.messages import EncodedMessage, encode_message

NOBODYS = "0" * 32


def appends(store, head):
    return (
        lambda: store.append_message(THREE, if_head=head),
        lambda: store.append_messages([THREE, ONE], if_head=head),
        lambda: store.append_event({"e": 1}, if_head=head),
    )


def test_an_append_with_the_current_head_is_stored(store):
    """Each kind of append is stored where head is as it was."""
    for k in range(3):
        before = store.position
        result = appends(store, store.head)[k]()
        first = result[0] if isinstance(result, tuple) and not hasattr(result, "seq") else result
        assert (first.previous_head, first.seq) == (before.head, before.seq + 1)
    assert store.record_count == 6


def test_an_append_with_another_head_stores_nothing(store, tmp_path):
    """If something was appended meanwhile, nothing is stored; the error says what the transcript ends in, and the way out."""
    read = store.head
    store.append_message(THREE)
    before = tree(tmp_path)
    for append in appends(store, read):
        with pytest.raises(ConversationChangedError, match="nothing was stored; read the new records") as caught:
            append()
        assert (caught.value.expected_head, caught.value.head) == (read, store.head)
        assert caught.value.path == store.directory
    assert tree(tmp_path) == before
    assert store.append_message(ONE, if_head=caught.value.head).seq == 4


@pytest.mark.parametrize("head", [NOBODYS, "", "é", "\ud800", "x" * 1000])
def test_a_head_that_there_never_was(store, head):
    """Any text that is not the head is another head."""
    with pytest.raises(ConversationChangedError):
        store.append_message(THREE, if_head=head)
    assert store.record_count == 2


@pytest.mark.parametrize("head", [b"0" * 32, 7, True, ["0" * 32]])
def test_what_is_no_head(store, head):
    """Another type is a mistake of the caller's."""
    with pytest.raises(TypeError, match="if_head"):
        store.append_message(THREE, if_head=head)


def test_an_empty_batch_asks_too(store, tmp_path):
    """append_messages([], if_head=…) writes nothing, and says whether the transcript is still that one."""
    before = tree(tmp_path)
    assert store.append_messages([], if_head=store.head) == ()
    with pytest.raises(ConversationChangedError):
        store.append_messages([], if_head=NOBODYS)
    assert tree(tmp_path) == before


def test_a_replace_and_a_load_between(store):
    """A head stands for all before it: after a replace it is another one, after a load the same."""
    read = store.head
    store.load()
    assert store.append_message(THREE, if_head=read).seq == 3
    read = store.head
    store.replace_transcript([ONE, TWO, THREE])
    with pytest.raises(ConversationChangedError):
        store.append_message(THREE, if_head=read)


def test_a_reader_may_not(store):
    """A reader's error is that it may not write."""
    with ConversationStore(store.directory, read_only=True) as reader:
        reader.load()
        with pytest.raises(ReadOnlyError):
            reader.append_message(ONE, if_head=reader.head)


@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
def test_of_many_threads_one_is_first(tmp_path, durability):
    """All ask for the same head, beside others that ask for none: each head is appended to once, and nothing is lost."""
    with ConversationStore(tmp_path / "c", durability=durability) as store:
        store.initialize()
        stored: list[tuple[int, int]] = []

        def take_turns(number: int) -> None:
            for turn in range(20):
                while True:
                    try:
                        stored.append(
                            (number, store.append_message({"thread": number, "turn": turn}, if_head=store.head).seq)
                        )
                        break
                    except ConversationChangedError:
                        continue

        def talk() -> None:
            for turn in range(20):
                store.append_message({"thread": -1, "turn": turn})

        threads = [threading.Thread(target=take_turns, args=(number,)) for number in range(3)]
        threads += [threading.Thread(target=talk) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        messages = store.get_messages()
        assert len(messages) == 100
        assert all(messages[seq - 1]["thread"] == number for number, seq in stored)
        assert len(stored) == 60


def test_given_again_after_an_interruption_it_is_stored_once(store, monkeypatch):
    """P21: Ctrl-C within the append, and the call again with the same head: the message is there once, whatever was written."""
    for is_written in (True, False):
        head, count = store.head, store.record_count
        real = PosixFileSystem.write

        def interrupted(handle, data, is_written=is_written, real=real):
            if is_written:
                real(handle, data)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(PosixFileSystem, "write", staticmethod(interrupted))
            store.append_message(THREE, if_head=head)
        if is_written:
            with pytest.raises(ConversationChangedError):
                store.append_message(THREE, if_head=head)
        else:
            store.append_message(THREE, if_head=head)
        assert store.record_count == count + 1
        assert store.get_messages()[-1] == THREE


def test_a_replace_of_what_was_read(store, tmp_path):
    """What came since is not replaced by whoever did not see it."""
    read = store.head
    store.append_message(THREE)
    before = tree(tmp_path)
    with pytest.raises(ConversationChangedError):
        store.replace_transcript([ONE], if_head=read)
    with pytest.raises(TypeError, match="if_head"):
        store.replace_transcript([ONE], if_head=7)
    assert tree(tmp_path) == before
    store.replace_transcript([EncodedMessage(encode_message(ONE, "message", 1000))], if_head=store.head)
    assert store.get_messages() == [ONE]

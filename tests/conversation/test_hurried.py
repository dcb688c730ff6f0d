"""Common wrong arguments: one value instead of a list, a store instead of its path, an unknown name.

Each of these was tried by a newcomer who had only the docs. What Python said by itself sent them the wrong way: that a store is no ``bytes``,
that an ``int`` is not iterable, that there are 20 times (the letters of one). So each is told as ours: what is wrong, with what, and what belongs there.
"""

from __future__ import annotations

import pytest

from tests.conversation.helpers import ONE
from tests.kit.trees import tree
from transcript_store import (
    ConversationLibrary,
    ConversationStore,
    FileStore,
    InvalidMetadataError,
    doctor,
    list_conversations,
    read_key_file,
    salvage,
    verify,
)

TIME = "2026-11-23T10:00:00Z"
ONE_FOR_SEVERAL = {
    "extras": (lambda store: store.append_messages([ONE], extras={"usage": 1}), "extras must be a list of JSON objects, not dict"),
    "times": (lambda store: store.append_messages([ONE], times=TIME), "times must be a list of times, not str"),
    "a time of a replace": (lambda store: store.replace_transcript([ONE], times=TIME), "times must be a list of times, not str"),
    "no iterable": (lambda store: store.append_messages([ONE], times=3), "times must be a list of times, not int"),
    "records": (lambda store: store.keep_records(1), "seqs must be a list of numbers of records, not int"),
    "messages": (lambda store: store.append_messages(ONE), "messages must be a list of JSON objects, not dict"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "told"), ONE_FOR_SEVERAL.values(), ids=ONE_FOR_SEVERAL.keys())
def test_one_where_several_belong(store, call, told):
    """It is not taken apart into its letters or names, and nothing is stored."""
    store.append_message(ONE)
    before = tree(store.directory)
    with pytest.raises(TypeError) as refused:
        call(store)
    assert str(refused.value) == told
    assert tree(store.directory) == before


def test_a_generator_is_as_good_as_a_list(store):
    first, _ = store.append_messages(
        (ONE for _ in range(2)), extras=({"n": n} for n in range(2)), times=(TIME for _ in range(2))
    )
    store.keep_records(seq for seq in (first.seq,))
    assert [record.extra for record in store.get_records()] == [{"n": 0}]


@pytest.mark.parametrize("begin", ["initialize", "load_or_initialize"])
def test_what_a_conversation_cannot_begin_with(tmp_path, begin):
    """The names that there are stand in the error."""
    with ConversationStore(tmp_path / "c") as store, pytest.raises(TypeError) as refused:
        getattr(store, begin)(titel="Moving house", system="Be brief.")
    told = str(refused.value)
    assert told.startswith(
        "a conversation cannot start with 'system', 'titel'; it can start with provider, model, system_prompt, "
    )
    assert "title" in told
    assert not (tmp_path / "c").exists()


def test_a_label_that_is_no_text_is_named(store):
    with pytest.raises(InvalidMetadataError, match=r"^labels: must be a dict of str to str, and 'run' is 7$"):
        store.update_metadata(labels={"title": "t", "run": 7})
    with pytest.raises(InvalidMetadataError, match=r"^labels: must be a dict of str to str, not \['t'\]$"):
        store.update_metadata(labels=["t"])


@pytest.mark.parametrize(
    "call", [verify, salvage, ConversationStore, FileStore, doctor, list_conversations, read_key_file]
)
def test_an_object_where_its_path_belongs(store, tmp_path, call):
    """It is not said that bytes would do: they would not."""
    with pytest.raises(
        TypeError, match=r"^a path must be a str or an os.PathLike of one, not ConversationStore; pass its directory$"
    ):
        call(store)
    with pytest.raises(TypeError, match=r"not ConversationLibrary; pass its directory$"):
        call(ConversationLibrary(tmp_path))
    for wrong in (None, 3, b"c"):
        with pytest.raises(
            TypeError, match=rf"^a path must be a str or an os.PathLike of one, not {type(wrong).__name__}$"
        ):
            call(wrong)


def test_one_earlier_key_where_several_belong(tmp_path):
    with pytest.raises(TypeError, match=r"retired_keys must be a list of keys, not bytes: pass \[key\]"):
        ConversationStore(tmp_path / "c", encryption_key=bytes(32), retired_keys=bytes(32))  # type: ignore[arg-type]

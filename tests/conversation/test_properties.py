"""Properties of every conversation: appends, batches, replaces, forks and metadata compared with a model.

The model is a list of messages, or a dictionary. What crashes make of it is in tests/crash/test_state_machine.py.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.cases import few
from transcript_store import ConversationLibrary, ConversationStore, verify
from transcript_store.testing import SimulatedFileSystem
from transcript_store.testing.strategies import PROVIDERS, conversations, json_objects, metadata

Message = dict[str, Any]
HISTORIES = st.sampled_from(PROVIDERS).flatmap(lambda provider: conversations(provider, max_turns=2))
A_FEW = settings(max_examples=few(20), deadline=None)


def opened(disk: SimulatedFileSystem, **options: Any) -> ConversationStore:
    return ConversationStore("/c", file_system=disk, durability="process-crash", **options)


@A_FEW
@given(
    st.lists(
        st.lists(st.tuples(json_objects(max_size=3), st.none() | json_objects(max_size=2)), max_size=3), max_size=4
    )
)
def test_a_batch_is_its_messages_one_by_one(batches: list[list[tuple[Message, Any]]]) -> None:
    """P3, P14: however messages are grouped, the conversation has them in order, with their extras; so has the next process."""
    disk = SimulatedFileSystem()
    with opened(disk) as store:
        store.initialize()
        for batch in batches:
            results = store.append_messages([one for one, _ in batch], extras=[extra for _, extra in batch])
            assert len(results) == len(batch)
    entries = [entry for batch in batches for entry in batch]
    with opened(disk) as again:
        again.load()
        assert [(record.message, record.extra) for record in again.get_records()] == entries
        assert again.record_count == len(entries)
        for last in range(len(entries) + 1):
            assert again.get_messages(last=last) == [one for one, _ in entries[len(entries) - last :]]


@A_FEW
@given(st.lists(HISTORIES, max_size=4), st.data())
def test_each_replace_keeps_what_was_there(histories: list[list[Message]], data: st.DataObject) -> None:
    """P4: every generation has what was live before the replace that ended it, but those that were deleted."""
    disk = SimulatedFileSystem()
    live: list[Message] = []
    archive: dict[int, list[Message]] = {}
    with opened(disk) as store:
        store.initialize()
        for number, messages in enumerate(histories):
            archive[number] = live
            store.replace_transcript(messages)
            live = messages
            is_one_deleted = data.draw(st.booleans(), label="delete one")
            if is_one_deleted:
                gone = data.draw(st.sampled_from(sorted(archive)), label="generation")
                store.delete_generation(gone)
                del archive[gone]
    with opened(disk, read_only=True) as again:
        again.load()
        assert again.get_messages() == live
        assert {one.number for one in again.generations() if not one.is_live} == set(archive)
        for number, messages in archive.items():
            assert [record.message for record in again.get_records(generation=number)] == messages
    assert verify("/c", file_system=disk).is_intact


@A_FEW
@given(HISTORIES, metadata(), st.data())
def test_a_fork_is_a_beginning_of_its_original(said: list[Message], fields: Message, data: st.DataObject) -> None:
    """P12: it has the records up to there, and the metadata; neither sees what the other adds."""
    library = ConversationLibrary("/library", file_system=SimulatedFileSystem())
    through = data.draw(st.integers(0, len(said)), label="through_seq")
    with library.create(messages=said, **fields) as original:
        with library.open(library.fork(original.id, through_seq=through)) as fork:
            assert fork.get_messages() == said[:through]
            ours, theirs = original.get_metadata(), fork.get_metadata()
            assert (ours.model, ours.system_prompt, ours.labels) == (theirs.model, theirs.system_prompt, theirs.labels)
            fork.append_message({"only": "here"})
            original.append_message({"only": "there"})
            assert fork.get_messages() == [*said[:through], {"only": "here"}]
        assert original.get_messages() == [*said, {"only": "there"}]
    assert len(library.list()) == 2


@A_FEW
@given(metadata(), st.lists(metadata(), max_size=4))
def test_metadata_is_a_dictionary(begun: Message, changes: list[Message]) -> None:
    """P4: each change replaces the members that it names and no other, and labels one by one; what it began with can still be read."""
    disk = SimulatedFileSystem()
    expected = {"model": None, "system_prompt": None, "labels": {}, **begun}
    with opened(disk) as store:
        store.initialize(**begun)
        for change in changes:
            store.update_metadata(**change)
    with opened(disk) as again:
        again.load()
        for name, value in expected.items():
            assert getattr(again.get_metadata(at_start=True), name) == value
        labels = {name: text for each in (expected, *changes) for name, text in each.get("labels", {}).items()}
        now = {name: value for each in (expected, *changes) for name, value in each.items()}
        for name, value in {**now, "labels": labels}.items():
            assert getattr(again.get_metadata(), name) == value

"""What an open store remembers of its key and of its earlier generations, while others change the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sealed.conversations import ID, KEY, MESSAGES, OTHER_KEY, opened, sealed
from transcript_store import ConversationLibrary, ConversationStore, CorruptTranscriptError


def test_a_generation_whose_end_nobody_states_any_more_is_not_genuine(tmp_path: Path) -> None:
    """Somebody took its successor away while a reader was open: records could be gone from its end."""
    with ConversationStore(tmp_path / "c", encryption_key=KEY) as store:
        store.initialize(messages=MESSAGES)
        for _ in range(2):
            store.replace_transcript(MESSAGES)
        assert [generation.damage for generation in store.generations()] == [None] * 3
        (tmp_path / "c" / "archive" / "transcript-000001.jsonl").unlink()
        first, live = store.generations()
        assert (first.number, live.number, live.damage) == (0, 2, None)
        assert first.damage == "nothing written with the key states where it ended"
        with pytest.raises(CorruptTranscriptError) as refused:
            list(store.iter_records(generation=0))
        assert refused.value.kind == "not-genuine"


class Vault:
    """A provider that counts how often it is asked for a data key."""

    id = "vault:1"

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.unwrapped = 0

    def wrap(self, data_key: bytes) -> bytes:
        ticket = b"ticket %d" % len(self.kept)
        self.kept[ticket] = data_key
        return ticket

    def unwrap(self, wrapped: bytes) -> bytes:
        self.unwrapped += 1
        return self.kept[wrapped]


def test_a_provider_is_asked_once_until_the_key_file_changes() -> None:
    """A turn behind another's goes on with the data key that is known, and a reader that refreshes too; behind a rotation it is asked."""
    disk, vault, another_vault = sealed(), Vault(), Vault()
    another_vault.kept = vault.kept
    library = ConversationLibrary("/library", encryption_key=vault, retired_keys=[KEY, OTHER_KEY], file_system=disk)
    assert library.rotate_key().rotated == (ID,)
    with opened(disk, vault, hold_lock=False) as store, opened(disk, another_vault, hold_lock=False) as another:
        store.load()
        another.load()
        vault.unwrapped = another_vault.unwrapped = 0
        for message in MESSAGES[:2]:
            another.append_message(message)
            another.update_metadata(labels={"title": str(message)})
            store.append_message(message)
        assert (vault.unwrapped, another_vault.unwrapped) == (0, 0)
        other = ConversationLibrary("/library", encryption_key=OTHER_KEY, retired_keys=[vault], file_system=disk)
        assert other.rotate_key().rotated == (ID,)
        assert library.rotate_key().rotated == (ID,)
        vault.unwrapped = 0
        store.append_message(MESSAGES[2])
        assert vault.unwrapped == 1
        assert len(store.get_messages()) == 9

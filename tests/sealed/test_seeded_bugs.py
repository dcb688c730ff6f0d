"""Sealing that is broken on purpose, one way at a time: the tests of this folder have to notice each, or their silence means nothing.

A bug names the deed, or the property, that shows it. What crashes show of keys is in tests/crash/seeded_bugs.py. P17.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.sealed import attacks
from tests.sealed.attacks import repaired_as
from tests.sealed.conversations import (
    CANARY,
    FOLDER,
    ID,
    KEY,
    MESSAGES,
    METADATA,
    TRANSCRIPT,
    content,
    lines,
    opened,
    sealed,
)
from transcript_store import ConversationLibrary, DataKeyExhaustedError, TranscriptStoreError, repair
from transcript_store._conversation import metadata, storage
from transcript_store._conversation.metadata import MetadataDocument, Sealing
from transcript_store._conversation.storage import Storage
from transcript_store._conversation.writer import Writer
from transcript_store._log import log, repair_plan
from transcript_store._log.lines import VerifiedLines
from transcript_store._log.record import Header
from transcript_store._log.sealed_records import RecordSealer
from transcript_store._sealing.data_key import DataKey
from transcript_store._sealing.keys import RawKey, WrappedKey, decode_key_file, encode_key_file

Patch = pytest.MonkeyPatch


# ---- what has to hold: each returns if it does, and raises if not ----------------------------------------------------


def seen(attack: Callable[[Any], object], *, replaced: bool = True, **options: Any) -> Callable[[], None]:
    """Somebody without the key does this, and the next one with the key is told."""

    def look() -> None:
        disk = sealed(replaced=replaced).copy()
        attack(disk)
        try:
            with opened(disk.copy()) as store:
                store.load(**options)
                store.get_messages()
                store.get_records()
                for generation in store.generations()[:-1]:
                    store.get_records(generation=generation.number)
        except TranscriptStoreError:
            return
        raise AssertionError("unseen")

    return look


def turned_round(disk: Any) -> None:
    repaired_as(disk, [2, 1])


def without_its_first_records(disk: Any) -> None:
    """All but the header of a generation that began with records; metadata.json is of the generation before, and genuine."""
    earlier = content(sealed(), METADATA)
    disk.write_file(METADATA, earlier)
    disk.write_file(TRANSCRIPT, lines(disk)[0] + b"\n")


def nonces_differ() -> None:
    disk, found = sealed().copy(), set()
    for attempt in range(3):
        again = disk.copy()
        with opened(again) as store:
            store.load()
            store.append_message({"attempt": attempt})
        found.add(base64.b64decode(json.loads(lines(again)[-1])["sealed"])[:12])
        disk.random_bytes(8)
    assert len(found) == 3


def nothing_is_in_sight() -> None:
    disk = sealed(replaced=True).copy()
    with opened(disk) as store:
        store.load()
        store.update_metadata(labels={"title": CANARY})
    assert not [path for path, data in disk.tree().items() if data and CANARY.encode() in data]


def a_repair_writes_nothing_plain() -> None:
    disk = sealed().copy()
    attacks.append_plain(disk)
    repair(FOLDER, mode="salvage", dry_run=False, file_system=disk)
    assert b"forged" not in content(disk)


def seals_are_counted(patch: Patch) -> None:
    patch.setattr("transcript_store._sealing.data_key.MOST_SEALS", 8)
    with opened(sealed()) as store:
        store.load()
        with pytest.raises(DataKeyExhaustedError):
            store.append_messages([{}, {}, {}])


def a_fork_has_a_key_of_its_own() -> None:
    disk = sealed().copy()
    library = ConversationLibrary("/library", encryption_key=KEY, file_system=disk)
    forks = [library.fork(ID), library.fork(ID)]
    data_keys = set()
    for one in forks:
        with library.open(one, read_only=True) as store:
            assert store.get_messages() == MESSAGES
        wrapped = decode_key_file(content(disk, f"/library/{one}/key.json"), "key.json", one)
        data_keys.add(RawKey(KEY).unwrap(wrapped.wrapped))
    assert len(data_keys) == 2


# ---- bugs ------------------------------------------------------------------------------------------------------------


def nonce_from_the_number(patch: Patch) -> None:
    """After a crash a number is written again with another text, and the nonce with it."""

    def body(self: RecordSealer, seq: int, *args: Any, **kwargs: Any) -> list[bytes]:
        self._random_bytes = lambda count: seq.to_bytes(count, "big")
        return real(self, seq, *args, **kwargs)

    real = RecordSealer.body
    patch.setattr(RecordSealer, "body", body)


def _places(patch: Patch, of: Callable[[list[str]], list[str]]) -> None:
    """The associated data of records is made of a part of their place."""

    def shortened(place: bytes) -> bytes:
        kind = place.decode().split("/")
        return "/".join(of(kind)).encode() if kind[2] == "record" else place

    sealing_one, opening = DataKey.seal, DataKey.open
    patch.setattr(DataKey, "seal", lambda self, nonce, plain, place: sealing_one(self, nonce, plain, shortened(place)))
    patch.setattr(DataKey, "open", lambda self, text, place: opening(self, text, shortened(place)))
    patch.setattr(RecordSealer, "all_opened", lambda self, lines, first_seq: None)


def place_without_the_number(patch: Patch) -> None:
    """transcript-store/1/record/<conversation>/<generation>/<at>"""
    _places(patch, lambda kind: kind[:5] + kind[6:])


def place_without_the_time(patch: Patch) -> None:
    _places(patch, lambda kind: kind[:6])


def place_without_the_generation(patch: Patch) -> None:
    _places(patch, lambda kind: kind[:4] + kind[5:])


def plain_accepted(patch: Patch) -> None:
    """A record that is plain is read as it stands, among sealed ones."""

    def line_itself(self: VerifiedLines, seq: int, line: Any) -> Any:
        return real(self, seq, line) if b'"sealed":"' in line else line

    real = VerifiedLines.opened
    patch.setattr(log, "first_plain", lambda data, starts: None)
    patch.setattr(VerifiedLines, "opened", line_itself)
    patch.setattr(RecordSealer, "all_opened", lambda self, lines, first_seq: None)


def plain_conversation_accepted(patch: Patch) -> None:
    real = Storage._unlocked
    patch.setattr(Storage, "_unlocked", lambda self, header: real(self, header) if header.is_sealed else None)


def mark_not_keyed(patch: Patch) -> None:
    real = Sealing.is_genuine
    patch.setattr(
        Sealing, "is_genuine", lambda self, source: isinstance(source, MetadataDocument) or real(self, source)
    )


def header_not_keyed(patch: Patch) -> None:
    """Neither what has no check nor what has a wrong one is objected to, in the first line."""
    real = Sealing.is_genuine
    patch.setattr(Sealing, "is_genuine", lambda self, source: isinstance(source, Header) or real(self, source))


def unkeyed_repair_accepted(patch: Patch) -> None:
    """Without a check is as good as with one."""

    def genuine(self: Storage, *_: Any) -> bool:
        return False

    patch.setattr(Storage, "_require_genuine", genuine)


def order_of_copies_not_looked_at(patch: Patch) -> None:
    patch.setattr(VerifiedLines, "require_kept_in_order", lambda self: None)


def copies_counted_anywhere(patch: Patch) -> None:
    """``sealed_at`` is believed in each record, and not in the first ``kept_sealed`` alone."""
    patch.setattr(Header, "kept_sealed", property(lambda self: 10**9))


def retraction_in_sight_believed(patch: Patch) -> None:
    patch.setattr(RecordSealer, "_retraction", staticmethod(lambda opened, line, seq, *, is_copy: opened))


def first_records_not_counted(patch: Patch) -> None:
    patch.setattr(Header, "begins_with", 0)


def missing_generation_not_noticed(patch: Patch) -> None:
    patch.setattr(storage, "missing_ranges", lambda live, there, gone: [])


def prompt_in_sight(patch: Patch) -> None:
    patch.setattr(metadata, "PLAINTEXT_MEMBERS", metadata.PLAINTEXT_MEMBERS | {"system_prompt"})


def plain_lines_kept_by_a_repair(patch: Patch) -> None:
    """What is kept of a sealed transcript is what is kept of a plain one."""

    def kept(read: Any, size: int, mode: Any, generation: int, *, at: str) -> Any:
        return repair_plan.plan(read, size, mode, at=at, original="")

    patch.setattr("transcript_store._conversation.repair.sealed_plan", kept)


def seals_not_counted(patch: Patch) -> None:
    patch.setattr(Writer, "_require_seals", lambda self, count: None)


def one_data_key_for_all(patch: Patch) -> None:
    """The data key is made of the conversation's age, say."""

    def new(cls: type[Sealing], keys: Any, conversation: str, files: Any, path: str) -> Sealing:
        wrapped = WrappedKey(conversation, *keys.wrap(bytes(32), path))
        return cls(DataKey(bytes(32), conversation), files, encode_key_file(wrapped))

    patch.setattr(Sealing, "new", classmethod(new))


@dataclass(frozen=True)
class Bug:
    """One way to break it, and what notices it."""

    break_it: Callable[[Patch], None]
    noticed_by: Callable[..., None]


BUGS = [
    Bug(nonce_from_the_number, nonces_differ),
    Bug(place_without_the_number, seen(attacks.swap_two_behind_the_mark)),
    Bug(place_without_the_time, seen(attacks.change_a_time_behind_the_mark)),
    Bug(place_without_the_generation, seen(attacks.replay_one_of_another_generation)),
    Bug(plain_accepted, seen(attacks.append_plain)),
    Bug(plain_conversation_accepted, seen(attacks.make_it_plain, replaced=False)),
    Bug(mark_not_keyed, seen(attacks.truncate)),
    Bug(header_not_keyed, seen(attacks.put_a_header_without_a_check_behind_earlier_metadata)),
    Bug(unkeyed_repair_accepted, seen(attacks.strip_the_check)),
    Bug(order_of_copies_not_looked_at, seen(turned_round, replaced=False, accept_unkeyed_repair=True)),
    Bug(copies_counted_anywhere, seen(attacks.replay_one_as_a_repaired_one, replaced=False)),
    Bug(retraction_in_sight_believed, seen(attacks.retract_more_behind_the_mark)),
    Bug(first_records_not_counted, seen(without_its_first_records)),
    Bug(missing_generation_not_noticed, seen(attacks.take_the_newest_archive)),
    Bug(prompt_in_sight, nothing_is_in_sight),
    Bug(plain_lines_kept_by_a_repair, a_repair_writes_nothing_plain),
    Bug(seals_not_counted, seals_are_counted),
    Bug(one_data_key_for_all, a_fork_has_a_key_of_its_own),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.break_it.__name__)
def test_a_seeded_bug_is_noticed(bug: Bug) -> None:
    """P17: what notices it is content with our store."""

    def look() -> None:
        with pytest.MonkeyPatch.context() as within:
            bug.noticed_by(within) if bug.noticed_by is seals_are_counted else bug.noticed_by()

    look()
    with pytest.MonkeyPatch.context() as patch:
        bug.break_it(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            look()
